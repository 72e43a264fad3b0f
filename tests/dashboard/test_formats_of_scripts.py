"""Scripts and templates write numbers alike: a page does not change when its script takes over."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from api.dashboard import formats
from api.dashboard.static_files import asset_url
from api.dashboard.views.budgets import parsed_size
from tests.dashboard.conftest import Dashboard

pytestmark = pytest.mark.needs("chromium", install="apt-get install chromium")

TIMES = [0.0, 1e-7, 2.345e-4, 0.0999, 0.99951, 1.0, 9.996, 12.345, 999.96, 1234.5, 98765.0, None]
SIZES = [0, 1, 1023, 1024, 1536, 1_048_575, 1_572_864, 5_000_000_000, 2**50, None]
SPANS = [0, 59, 60, 61, 200, 3599, 3600, 7500, 86_400, 277_000, None]
COUNTS = [0, 999, 1000, 20_000, 1_234_567, None]
TYPED = ["4096", " 64 KiB ", "1.5MiB", "2M", "3 gb", "", "-4", "4 apples", "1e9"]


def test_scripts_and_templates_write_numbers_alike(page: Page, dashboard: Dashboard):
    page.goto(f"{dashboard.url}/sign-in")
    written = page.evaluate(
        """async ([url, times, sizes, spans, counts, typed]) => {
          const formats = await import(url);
          return [times.map(formats.timeMs), sizes.map(formats.size), spans.map(formats.seconds),
                  counts.map(formats.count), typed.map(formats.parsedSize)];
        }""",
        [asset_url("formats.js"), TIMES, SIZES, SPANS, COUNTS, TYPED],
    )
    assert written == [
        [formats.time_ms(value) for value in TIMES],
        [formats.size(value) for value in SIZES],
        [formats.seconds(value) for value in SPANS],
        [formats.count(value) for value in COUNTS],
        [parsed_size(text) for text in TYPED],
    ]


def test_a_logarithmic_axis_has_ticks_within_a_decade_and_no_more_than_there_is_room_for(
    page: Page, dashboard: Dashboard
):
    page.goto(f"{dashboard.url}/sign-in")
    found = page.evaluate(
        """async (url) => {
          const { ticks } = await import(url);
          const axis = (least, most) => ({log: true, least, most, start: 0, end: 900});
          return [ticks(axis(0.028, 0.155), 12, "time").map((tick) => Number(tick.toFixed(6))),
                  ticks(axis(0.9, 110), 8, "time"), ticks(axis(0.9, 1e6), 8, "time"),
                  ticks(axis(1000, 70000), 9, "bytes")];
        }""",
        asset_url("scales.js"),
    )
    assert found == [
        [0.03, 0.04, 0.05, 0.07, 0.1, 0.15],
        [1, 2, 5, 10, 20, 50, 100],
        [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000],
        [1024 * 2**power for power in range(7)],
    ]
