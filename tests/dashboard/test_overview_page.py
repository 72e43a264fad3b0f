"""The overview: what goes on, what came out, how the devices are."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.conftest import Dashboard, check_looks

pytestmark = pytest.mark.needs("chromium", install="apt-get install chromium")


def test_the_overview_leads_to_the_run_its_front_and_its_device(page: Page, dashboard: Dashboard):
    page.goto(dashboard.url)
    with dashboard.client() as client:
        front = client.get("/v1/fronts", params={"run": dashboard.run_id}).json()
    card = page.locator(".fronts article").filter(
        has=page.locator(f'a[href="/runs/{dashboard.run_id}"]')
    )
    expect(card.locator("circle")).to_have_count(len(front["points"]))
    expect(
        card.locator(f'a[href="/candidates/{front["fastest"]["candidate"]}"]').first
    ).to_be_visible()
    # Its table says the same, and so does its file.
    card.get_by_text("As a table").click()
    expect(card.locator("tbody tr")).to_have_count(len(front["points"]))
    with page.expect_download() as started:
        card.get_by_role("link", name="JSON").click()
    assert json.loads(started.value.path().read_text())["points"] == front["points"]
    row = page.locator("section[aria-labelledby=ended] tbody tr").filter(
        has=page.locator(f'a[href="/runs/{dashboard.run_id}"]')
    )
    expect(row).to_contain_text("finished")
    expect(row.locator(f'a[href="/devices/{dashboard.device_id}"]')).to_be_visible()


def test_the_overview_looks_as_it_should(browser: Browser, dashboard: Dashboard):
    check_looks(browser, dashboard, "/", "overview", "time[title]")
