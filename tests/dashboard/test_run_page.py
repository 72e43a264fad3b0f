"""The page of a run: its front, what the brush, the budget and the keys do, and its files."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.conftest import SKETCH, Dashboard, Watched, check_looks, open_context

pytestmark = pytest.mark.needs("chromium", install="apt-get install chromium")


@pytest.fixture(scope="module")
def front(dashboard: Dashboard) -> list[dict[str, Any]]:
    """The points of the front, fastest first, as the API has them."""
    with dashboard.client() as client:
        return client.get("/v1/fronts", params={"run": dashboard.run_id}).json()["points"]


def open_run(page: Page, dashboard: Dashboard, search: str = "") -> None:
    page.goto(f"{dashboard.url}/runs/{dashboard.run_id}{search}")
    page.wait_for_selector("[data-complete]")


def listed(page: Page) -> list[str]:
    """The candidates of the table's rows."""
    return [
        (link.get_attribute("href") or "").rpartition("/")[2]
        for link in page.locator("[data-points] tbody th a").all()
    ]


def drag_over_everything(page: Page) -> None:
    box = page.locator("[data-scatter]").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 80, box["y"] + 14)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 200)
    page.mouse.move(box["x"] + box["width"] - 20, box["y"] + box["height"] - 46)
    page.mouse.up()


def saved(page: Page, selector: str, folder: Path) -> Path:
    with page.expect_download() as download:
        page.locator(selector).click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def test_the_front_is_a_table_without_a_script(
    browser: Browser, dashboard: Dashboard, front: list[dict[str, Any]]
):
    with open_context(browser, dashboard, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(f"{dashboard.url}/runs/{dashboard.run_id}")
        assert listed(page) == [point["candidate"] for point in front]
        most = front[-1]["memory_bytes"]
        page.goto(f"{dashboard.url}/runs/{dashboard.run_id}?budget={most}")
        answer = page.locator("#budget-result a")
        assert answer.get_attribute("href") == f"/candidates/{front[-1]['candidate']}"


def test_a_brush_fills_the_table_and_the_url_keeps_it(
    page: Page, dashboard: Dashboard, front: list[dict[str, Any]]
):
    open_run(page, dashboard)
    expect(page.locator("[data-points] tbody tr")).to_have_count(len(front))
    with dashboard.client() as client:
        filters = {"run": dashboard.run_id, "outcome": "timed"}
        timed = client.get("/v1/measurements", params=filters).json()["items"]
    drag_over_everything(page)
    expect(page.locator("[data-table-title]")).to_have_text(f"{len(timed)} selected")
    expect(page.locator("[data-points] tbody tr")).to_have_count(len(timed))
    in_order = sorted(timed, key=lambda found: found["time_ms"])
    assert listed(page) == [found["candidate"] for found in in_order]
    page.locator("[data-sort=memory]").click()
    smallest = min(found["memory_bytes"] for found in timed)
    first = page.locator("[data-points] tbody tr").first.locator("td[title$=bytes]")
    expect(first).to_have_attribute("title", f"{smallest} bytes")

    shared = page.url
    assert "brush=" in shared
    page.goto("about:blank")
    page.goto(shared)
    expect(page.locator("[data-table-title]")).to_have_text(f"{len(timed)} selected")
    page.locator("[data-clear-selection]").click()
    expect(page.locator("[data-points] tbody tr")).to_have_count(len(front))
    assert "brush=" not in page.url


def test_the_budget_selects_the_fastest_kernel_within_it(
    page: Page, dashboard: Dashboard, front: list[dict[str, Any]]
):
    open_run(page, dashboard)
    answer = page.locator("#budget-result")
    for point in front:
        page.locator("#budget").fill(str(point["memory_bytes"]))
        expect(answer.locator("a")).to_have_attribute("href", f"/candidates/{point['candidate']}")
    assert parse_qs(urlsplit(page.url).query)["budget"] == [str(front[-1]["memory_bytes"])]
    page.locator("#budget").fill("1 B")
    expect(answer).to_contain_text("Nothing on the front is that small")
    page.locator("#budget").fill("much")
    expect(answer).to_contain_text("no amount of memory")
    expect(page.locator("#budget")).to_have_attribute("aria-invalid", "true")


def test_keys_walk_the_front_pin_and_open(
    page: Page, dashboard: Dashboard, front: list[dict[str, Any]]
):
    open_run(page, dashboard)
    figure = page.locator("[data-scatter]")
    figure.focus()
    heard = page.locator("#announcements")
    page.keyboard.press("ArrowRight")
    expect(heard).to_contain_text(f"1 of {len(front)} on the front")
    expect(page.locator("[data-tip]")).to_contain_text(front[0]["candidate"][:10])
    page.keyboard.press("p")
    page.keyboard.press("End")
    expect(heard).to_contain_text(f"{len(front)} of {len(front)} on the front")
    # Where the smallest is the fastest too, the front is one point, which a second p would unpin.
    pinned = list(dict.fromkeys(point["candidate"] for point in (front[0], front[-1])))
    if len(pinned) > 1:
        page.keyboard.press("p")
    wanted = "/compare?" + "&".join(f"c={candidate}" for candidate in pinned)
    expect(page.locator("[data-compare]")).to_have_attribute("href", wanted)
    expect(page.locator("[data-points] input:checked")).to_have_count(len(pinned))
    page.keyboard.press("?")
    expect(page.locator("dialog#keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/candidates/{front[0]['candidate']}")


def test_a_point_under_the_pointer_says_what_is_known_of_it(
    page: Page, dashboard: Dashboard, front: list[dict[str, Any]]
):
    open_run(page, dashboard)
    # The page's own scale says where the fastest kernel is drawn.
    page.locator("[data-scatter]").focus()
    page.keyboard.press("Home")
    tip = page.locator("[data-tip]")
    for fact in ("time", "95 %", "spread", "memory", "variant", "device", "clocks", "correct"):
        expect(tip.locator("dt", has_text=fact).first).to_be_visible()
    assert front[0]["variant"] in tip.inner_text()


def chosen_of_the_fastest(
    dashboard: Dashboard, front: list[dict[str, Any]]
) -> tuple[str, list[str]]:
    """A filter that the fastest kernel meets, and the candidates of the front that meet it."""
    with dashboard.client() as client:
        chosen = [
            client.get(f"/v1/candidates/{point['candidate']}").json()["parameters"]
            for point in front
        ]
    name, value = next(iter(chosen[0].items()))
    kept = [
        point["candidate"]
        for point, parameters in zip(front, chosen, strict=True)
        if parameters.get(name) == value
    ]
    return f"{name}={value}", kept


def test_filters_leave_what_they_say(
    page: Page, dashboard: Dashboard, watched: Watched, front: list[dict[str, Any]]
):
    watched.expected = ("422",)  # the filter that is none
    open_run(page, dashboard)
    page.locator("[data-legend] button", has_text="direct").click()
    variants = page.locator("[data-points] tbody td:nth-child(6)")
    expect(variants.filter(has_text="direct")).to_have_count(0)
    assert "hide=direct" in page.url
    page.locator("[data-reset]").click()
    field = page.locator("[data-where]")
    condition, kept = chosen_of_the_fastest(dashboard, front)
    field.fill(condition)
    field.press("Enter")
    expect(page.locator("[data-points] tbody tr")).to_have_count(len(kept))
    assert listed(page) == kept
    field.fill("kappa")
    field.press("Enter")
    expect(page.locator("[data-error]")).to_contain_text("is no filter")
    page.locator("[data-reset]").click()
    expect(page.locator("[data-error]")).to_be_hidden()


def test_axes_change_in_one_click_and_stay_in_the_url(page: Page, dashboard: Dashboard):
    open_run(page, dashboard)
    before = page.locator("[data-scatter]").screenshot()
    page.locator("[data-axis=x][data-scale=linear]").click()
    expect(page.locator("[data-axis=x][data-scale=linear]")).to_have_attribute(
        "aria-pressed", "true"
    )
    assert "x=linear" in page.url
    assert page.locator("[data-scatter]").screenshot() != before


def test_files_hold_what_the_api_has(page: Page, dashboard: Dashboard, tmp_path: Path):
    open_run(page, dashboard)
    with dashboard.client() as client:
        export = {"run": dashboard.run_id, "format": "csv"}
        text = client.get("/v1/measurements/export", params=export).text
    known = {row["id"]: row for row in csv.DictReader(io.StringIO(text))}
    drag_over_everything(page)
    expect(page.locator("[data-table-title]")).to_contain_text("selected")

    saved_text = saved(page, "[data-save=csv]", tmp_path).read_text()
    rows = list(csv.DictReader(io.StringIO(saved_text)))
    assert len(rows) == sum(row["outcome"] == "timed" for row in known.values())
    for row in rows:
        stored = known[row["id"]]
        assert row["candidate"] == stored["candidate"]
        assert float(row["time_ms"]) == pytest.approx(float(stored["time_ms"]), rel=1e-12)
        assert row["memory_bytes"] == stored["memory_bytes"]
        assert json.loads(row["parameters"]) == json.loads(stored["parameters"])
    listed_rows = json.loads(saved(page, "[data-save=json]", tmp_path).read_text())
    assert [str(row["id"]) for row in listed_rows] == [row["id"] for row in rows]
    assert saved(page, "[data-save=png]", tmp_path).read_bytes().startswith(b"\x89PNG")
    whole = saved(page, "section a[href*='format=csv']", tmp_path)
    assert whole.read_bytes().decode() == text


def test_curves_and_parallel_coordinates_are_drawn(page: Page, dashboard: Dashboard):
    open_run(page, dashboard)
    for selector in ("[data-curve=best]", "[data-curve=volume]", "[data-parallel]"):
        page.locator(selector).scroll_into_view_if_needed()
        expect(page.locator(f"{selector} canvas").first).to_be_visible()
    expect(page.locator("[data-parallel-note]")).to_contain_text("kernels")
    with dashboard.client() as client:
        steps = client.get(f"/v1/runs/{dashboard.run_id}/series").json()["hypervolume"]
    page.locator("[data-volumes] summary").click()
    listed = page.locator("[data-volumes] tbody tr")
    expect(listed).to_have_count(len(steps))
    expect(listed.last).to_contain_text("100.0")


@pytest.fixture(scope="module")
def baselines(dashboard: Dashboard) -> list[dict[str, Any]]:
    """What the run is held against, as the API has it."""
    with dashboard.client() as client:
        return client.get(f"/v1/runs/{dashboard.run_id}/baselines").json()["baselines"]


def test_the_best_is_held_against_baselines_that_another_run_has_measured(
    page: Page, dashboard: Dashboard, front: list[dict[str, Any]],
    baselines: list[dict[str, Any]], tmp_path: Path,
):  # fmt: skip
    # One of another run, one of this run, and one that nobody has measured.
    runs = {one["variant"]: one["run"] for one in baselines}
    assert runs.pop(SKETCH) == dashboard.baselines_id and runs.pop("high-level") is None
    assert set(runs.values()) == {dashboard.run_id}
    measured = [one for one in baselines if one["point"]]
    open_run(page, dashboard)
    rows = page.locator("#baselines-table tbody tr")
    expect(rows).to_have_count(1 + len(baselines))
    for place, one in enumerate(measured, 1):
        link = rows.nth(place).locator("th a")
        expect(link).to_have_attribute("href", f"/candidates/{one['point']['candidate']}")
        expect(link).to_have_text(one["variant"])
    text = saved(page, "[data-csv=baselines-table]", tmp_path).read_text()
    written = list(csv.DictReader(io.StringIO(text)))
    best, others, missing = written[0], written[1:-1], written[-1]
    assert best["Candidate"] == front[0]["candidate"]
    assert float(best["Time in ms"]) == front[0]["time_ms"]
    assert [
        (row["Way"], row["Candidate"], float(row["Time in ms"]), int(row["Memory in bytes"]),
         float(row["Time over the best"]))
        for row in others
    ] == [
        (one["variant"], one["point"]["candidate"], one["point"]["time_ms"],
         one["point"]["memory_bytes"], one["time_over_best"])
        for one in measured
    ]  # fmt: skip
    assert (missing["Way"], missing["Time in ms"], missing["Candidate"]) == ("high-level", "", "")
    saved_json = json.loads(saved(page, "#baselines a[download]", tmp_path).read_text())
    assert saved_json["baselines"] == baselines
    expect(rows.last.get_by_role("button", name="Measure high-level")).to_be_visible()
    rows.nth(1).get_by_role("link", name="Compare").click()
    expect(page.locator("#times-table tbody tr")).to_have_count(2)


def test_the_roofline_has_roofs_and_the_rates_of_front_and_baselines(
    page: Page, dashboard: Dashboard, front: list[dict[str, Any]],
    baselines: list[dict[str, Any]], tmp_path: Path,
):  # fmt: skip
    open_run(page, dashboard)
    page.locator("[data-roofline]").click()
    rows = page.locator("#roofline-table tbody tr")
    of_front = [point["candidate"] for point in front]
    others = [one["point"]["candidate"] for one in baselines if one["point"]]
    wanted = of_front + [one for one in others if one not in of_front]
    expect(rows).to_have_count(len(wanted), timeout=60_000)
    expect(rows.first).to_contain_text("FLOP/s")
    expect(page.locator("[data-roofline-note]")).to_contain_text("fitted to")
    text = saved(page, "[data-csv=roofline-table]", tmp_path).read_text()
    written = list(csv.DictReader(io.StringIO(text)))
    assert [row["Kernel"] for row in written] == wanted
    assert f"{SKETCH}, baseline" in {row["Variant"] for row in written}
    assert saved(page, "[data-save-roofline]", tmp_path).read_bytes().startswith(b"\x89PNG")


def brush_time(page: Page, *span: float) -> None:
    """As a drag along the last axis of the parameters, which is the time: the library's own
    action for it. Without a span the brush is taken away."""
    page.evaluate(
        """async (intervals) => {
          const files = performance.getEntriesByType("resource").map((one) => one.name);
          const { getInstanceByDom } = await import(files.find((name) => name.includes("echarts")));
          const chart = getInstanceByDom(document.querySelector("[data-parallel]"));
          const parallelAxisIndex = chart.getOption().parallelAxis.length - 1;
          chart.dispatchAction({ type: "axisAreaSelect", parallelAxisIndex, intervals });
        }""",
        [list(span)] if span else [],
    )


def test_a_brushed_axis_of_parameters_selects_kernels_in_the_figure(
    page: Page, dashboard: Dashboard
):
    open_run(page, dashboard)
    page.locator("[data-parallel]").scroll_into_view_if_needed()
    expect(page.locator("[data-parallel] canvas").first).to_be_visible()
    with dashboard.client() as client:
        filters = {"run": dashboard.run_id, "outcome": "timed"}
        timed = client.get("/v1/measurements", params=filters).json()["items"]
    times = sorted(found["time_ms"] for found in timed)
    middle = times[len(times) // 2]
    brush_time(page, times[0], middle)
    page.locator("[data-scatter]").scroll_into_view_if_needed()
    drag_over_everything(page)
    kept = [found for found in timed if found["time_ms"] <= middle]
    expect(page.locator("[data-table-title]")).to_have_text(f"{len(kept)} selected")
    # The title comes first, rows when what they say of each kernel has been fetched.
    expect(page.locator("[data-points] tbody th a")).to_have_count(len(kept))
    assert set(listed(page)) == {found["candidate"] for found in kept}
    # A span through which no line goes leaves none, no span leaves all.
    brush_time(page, times[-1] * 2, times[-1] * 3)
    expect(page.locator("[data-note]")).to_have_text("The filters leave nothing to show.")
    brush_time(page)
    expect(page.locator("[data-note]")).to_be_hidden()


def test_a_link_shows_the_same_choices_to_whoever_opens_it(
    page: Page, browser: Browser, dashboard: Dashboard, front: list[dict[str, Any]]
):
    open_run(page, dashboard)
    page.locator("[data-axis=y][data-scale=linear]").click()
    page.locator("[data-colour]").select_option("device")
    expect(page.locator("[data-legend] button")).to_have_count(1)
    condition, kept = chosen_of_the_fastest(dashboard, front)
    page.locator("[data-where]").fill(condition)
    page.locator("[data-where]").press("Enter")
    expect(page.locator("[data-points] tbody tr")).to_have_count(len(kept))
    drag_over_everything(page)
    page.locator("[data-zoom]").click()
    page.locator("[data-scatter]").focus()
    page.keyboard.press("End")
    page.keyboard.press("p")
    page.locator("#budget").fill("2 GiB")
    expect(page.locator("[data-points] tbody tr")).to_have_count(len(kept))
    shared = page.evaluate("() => location.href")
    with open_context(browser, dashboard) as context:
        other = context.new_page()
        other.goto(shared)
        other.wait_for_selector("[data-complete]")
        expect(other.locator("[data-axis=y][data-scale=linear]")).to_have_attribute(
            "aria-pressed", "true"
        )
        expect(other.locator("[data-colour]")).to_have_value("device")
        expect(other.locator("[data-where]")).to_have_value(condition)
        expect(other.locator("#budget")).to_have_value("2 GiB")
        expect(other.locator("[data-pins-note]")).to_contain_text("1 pinned")
        expect(other.locator("[data-points] tbody tr")).to_have_count(len(kept))
        assert other.evaluate("() => location.href") == shared
        assert "zoom=" in shared and "at=" in shared


def test_the_page_of_a_run_looks_as_it_should(browser: Browser, dashboard: Dashboard):
    path = f"/runs/{dashboard.run_id}"
    check_looks(browser, dashboard, path, "run", "[data-complete]", part="baselines")


def test_a_run_that_is_not_there_is_said_to_be_not_there(browser: Browser, dashboard: Dashboard):
    with open_context(browser, dashboard) as context:
        page = context.new_page()
        answer = page.goto(f"{dashboard.url}/runs/run_{'0' * 26}")
        assert answer is not None and answer.status == 404
        expect(page.locator("h1")).to_have_text("There is no such thing")
