"""Pages of devices and networks."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from mapper.layer_sets import load_layer_set
from tests.dashboard.conftest import Dashboard, check_looks
from tests.dashboard.served import LAYER

pytestmark = pytest.mark.needs("chromium", install="apt-get install chromium")


def test_a_device_is_quarantined_and_released_on_its_page(page: Page, dashboard: Dashboard):
    page.goto(f"{dashboard.url}/devices/{dashboard.device_id}")
    page.locator("#reason").fill("gets <b>too</b> hot")
    page.locator("button[value=quarantine]").click()
    expect(page.locator(".notice.warn")).to_contain_text("Quarantined: gets <b>too</b> hot")
    with dashboard.client() as client:
        device = client.get(f"/v1/devices/{dashboard.device_id}").json()
        assert (device["state"], device["reason"]) == ("quarantined", "gets <b>too</b> hot")
        page.goto(f"{dashboard.url}/devices?state=quarantined")
        row = page.locator("tbody tr").filter(
            has=page.locator(f'a[href="/devices/{dashboard.device_id}"]')
        )
        expect(row).to_contain_text("too</b> hot")
        row.locator("a").first.click()
        page.locator("button[value=release]").click()
        expect(page.locator("button[value=quarantine]")).to_be_visible()
        assert client.get(f"/v1/devices/{dashboard.device_id}").json()["state"] == "active"
    expect(page.locator("section[aria-labelledby=events]")).to_contain_text("quarantined")


def test_a_stored_layer_shows_the_front_of_its_run(page: Page, dashboard: Dashboard):
    with dashboard.client() as client:
        # The name tells layers apart for people alone.
        stored = client.post("/v1/layers", json={**LAYER, "name": "imported/1"}).json()["id"]
        front = client.get("/v1/fronts", params={"run": dashboard.run_id}).json()
    page.goto(f"{dashboard.url}/networks")
    row = page.locator("tbody tr").filter(has=page.locator(f'a[href="/layers/{stored}"]'))
    fastest = row.locator(f'a[href="/candidates/{front["fastest"]["candidate"]}"]')
    expect(fastest.first).to_be_visible()
    # Other tests measure again: their runs are newer.
    expect(row.locator('a[href^="/runs/"]')).to_be_visible()


def test_a_network_lists_every_layer_of_it(page: Page, dashboard: Dashboard):
    page.goto(f"{dashboard.url}/networks/vgg16")
    rows = page.locator("section[aria-labelledby=layers] tbody tr")
    expect(rows).to_have_count(len(load_layer_set("vgg16").layers))
    expect(rows.first).to_contain_text("not tuned yet")


def test_the_pages_of_devices_and_networks_look_as_they_should(
    browser: Browser, dashboard: Dashboard
):
    device = f"/devices/{dashboard.device_id}"
    check_looks(browser, dashboard, device, "device", "[data-complete]")
    check_looks(browser, dashboard, "/devices", "devices", "time[title]")
    check_looks(browser, dashboard, "/networks", "networks", "main")
    check_looks(browser, dashboard, "/networks/vgg16", "network", "main")
