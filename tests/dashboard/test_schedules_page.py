"""The page of schedules in a browser: steps of a derivation, a refusal, sketches."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.conftest import Dashboard, check_looks

pytestmark = pytest.mark.needs("chromium", install="apt-get install chromium")


def test_a_schedule_is_followed_step_by_step_up_to_its_refusal(page: Page, dashboard: Dashboard):
    page.goto(f"{dashboard.url}/schedules")
    page.get_by_role("button", name="Show every step").click()
    expect(page.locator(".steps > li")).to_have_count(3)
    expect(page.locator(".steps > li").nth(2).locator("mark").first).to_be_visible()
    schedule = page.get_by_label("A step a line")
    schedule.fill('schedule "s" {\n  split(row, bm)\n  move_inside(row_tile)\n}')
    page.get_by_role("button", name="Show every step").click()
    expect(page.locator("#refusal")).to_contain_text("Step 2, move_inside(row_tile)")
    expect(page.locator(".steps > li")).to_have_count(1)
    expect(page.locator(".steps")).to_contain_text("bm left open")
    expect(schedule).to_have_value('schedule "s" {\n  split(row, bm)\n  move_inside(row_tile)\n}')


def test_sketches_lead_to_their_steps(page: Page, dashboard: Dashboard):
    page.goto(f"{dashboard.url}/schedules")
    page.get_by_label("Device of sketches").select_option("h200")
    page.get_by_role("button", name="List the schedules worth having").click()
    sketch = page.locator(".sketches > li").filter(has=page.get_by_text("tile-filter", exact=True))
    expect(sketch).to_contain_text("registers")
    sketch.get_by_text("Its schedule").click()
    sketch.get_by_role("button", name="Show every step of it").click()
    expect(page.locator("#steps-title")).to_have_text("Steps of tile-filter")
    expect(page.locator("#refusal")).to_have_count(0)


def test_the_page_is_readable_in_every_light_and_width(browser: Browser, dashboard: Dashboard):
    check_looks(browser, dashboard, "/schedules", "schedules", "#schedule")
