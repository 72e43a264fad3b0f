"""The figure of a front by itself: what is drawn where, and what it says of the pointer."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page

from api.dashboard.static_files import asset_url
from tests.dashboard.conftest import Dashboard, Watched

pytestmark = pytest.mark.needs("chromium", install="apt-get install chromium")

#: Three kernels of two variants on two devices; the first two are the front.
COLUMNS: dict[str, Any] = {
    "studies": [{"variant": "a", "device": "y"}, {"variant": "b", "device": "x"}],
    "id": [7, 8, 9], "study": [0, 1, 1], "time": [1.0, 4.0, 8.0], "memory": [4096, 1024, 2048],
    "candidate": ["a" * 64, "b" * 64, "c" * 64], "front": [7, 8], "total": 3, "newest": 9,
}  # fmt: skip
DRAW = """
async ([scatterUrl, pointsUrl, scalesUrl, columns]) => {
  const { Scatter } = await import(scatterUrl);
  const { Points } = await import(pointsUrl);
  const { toPixel } = await import(scalesUrl);
  const root = document.createElement("div");
  root.style.cssText = "position: fixed; inset: 0; width: 640px; height: 400px";
  for (const name of ["data-cloud", "data-axes", "data-overlay"]) {
    const part = document.createElement(name === "data-axes" ? "div" : "canvas");
    part.setAttribute(name, "");
    part.style.position = "absolute";
    root.append(part);
  }
  document.body.append(root);
  const hovered = [];
  const told = { brushed() {}, hovered: (place) => hovered.push(place), clicked() {} };
  const scatter = new Scatter(root, told);
  const points = new Points(columns);
  const draw = (more) => scatter.show({
    points, visible: () => true, colourOf: (place) => points.study[place], intervals: new Map(),
    logX: true, logY: true, zoom: null, budget: null, pins: new Set(), ...more,
  });
  const inked = (canvas, x, y) =>
    [...canvas.getContext("2d").getImageData(Math.floor(x), Math.floor(y), 1, 1).data];
  return await (BODY)({ scatter, points, draw, inked, toPixel, hovered, root });
}
"""


@pytest.fixture(autouse=True)
def reading_back_is_no_fault(watched: Watched) -> None:
    """A browser warns of tests that look at many pixels one by one."""
    watched.expected = ("Multiple readback operations",)


def drawn(page: Page, dashboard: Dashboard, body: str) -> Any:
    page.goto(f"{dashboard.url}/sign-in")
    urls = [asset_url(name) for name in ("scatter.js", "points.js", "scales.js")]
    return page.evaluate(DRAW.replace("BODY", body), [*urls, COLUMNS])


def test_a_kernel_of_the_front_has_a_bar_from_one_end_of_its_interval_to_the_other(
    page: Page, dashboard: Dashboard
):
    # Above the point the ends of the bar stand out from whatever is drawn there without it.
    before, after, beyond = drawn(page, dashboard, """({ scatter, draw, inked, toPixel }) => {
      const look = (ms) => inked(scatter.frame, toPixel(scatter.x, ms), scatter.py[0] + 3)[3];
      const ends = () => [0.95, 1.2].map(look);
      draw({});
      const before = ends();
      draw({ intervals: new Map([[7, { low_ms: 0.95, high_ms: 1.2 }]]) });
      return [before, ends(), look(1.35)];
    }""")  # fmt: skip
    assert all(end > 100 for end in after) and all(end < 60 for end in (*before, beyond))


def test_colours_tell_variants_or_devices_apart(page: Page, dashboard: Dashboard):
    by_variant, by_device, one = drawn(page, dashboard, """({ scatter, points, draw, inked }) => {
      const colours = () => [0, 1, 2].map((place) =>
        inked(scatter.cloud, scatter.px[place], scatter.py[place]).slice(0, 3).join());
      const by = (name) => {
        const groups = points.groups(name);
        draw({ colourOf: (place) => groups.indexOf(points.group(place, name)) });
        return colours();
      };
      const found = [by("variant"), by("device")];
      draw({ colourOf: () => 0 });
      return [...found, colours()];
    }""")  # fmt: skip
    assert by_variant[0] != by_variant[1] == by_variant[2]
    # Devices are in another order than their variants here, so that colours change places.
    assert by_device == [by_variant[1], by_variant[0], by_variant[0]]
    assert len(set(one)) == 1


def test_the_pointer_finds_the_kernel_that_it_is_near_and_none_elsewhere(
    page: Page, dashboard: Dashboard
):
    found = drawn(page, dashboard, """({ scatter, draw, hovered, root }) => {
      draw({});
      const move = (x, y) => root.dispatchEvent(
        new PointerEvent("pointermove", { clientX: x, clientY: y, bubbles: true }));
      move(scatter.px[2] + 4, scatter.py[2] - 4);
      move(scatter.px[0] + 3, scatter.py[0]);
      move(scatter.px[2], scatter.py[0]);
      return hovered;
    }""")  # fmt: skip
    assert found == [2, 0, None]


def test_an_axis_is_logarithmic_or_linear(page: Page, dashboard: Dashboard):
    log, linear = drawn(page, dashboard, """({ scatter, draw }) => {
      const gaps = () => [scatter.px[1] - scatter.px[0], scatter.px[2] - scatter.px[1]];
      draw({ logX: true });
      const log = gaps();
      draw({ logX: false });
      return [log, gaps()];
    }""")  # fmt: skip
    # 1, 4 and 8 ms: a factor of four and one of two, three ms and four.
    assert log[0] == pytest.approx(2 * log[1], rel=0.01)
    assert linear[1] == pytest.approx(linear[0] * 4 / 3, rel=0.01)
