"""A run that goes on: points come to the page, wait while it is paused, and come again after the
service was away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.conftest import Dashboard, Watched, open_context
from tests.dashboard.served import Served, begin_run

pytestmark = pytest.mark.needs("chromium", install="apt-get install chromium")

#: More than the test waits for: it is cancelled in the end.
MANY = 5_000


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A service of the test's own, whose device invents times: it measures as fast as it can."""
    started = Served(tmp_path, "--worker-device", "null")
    try:
        yield started
    finally:
        started.stop()


def shown(page: Page) -> int:
    """How many kernels the page says there are."""
    text = page.locator("[data-shown-note]").inner_text()
    return int(
        "".join(character for character in text.partition("timed")[0] if character.isdigit())
    )


def wait_for_more(page: Page, than: int, within_ms: int = 60_000) -> int:
    page.wait_for_function(
        "than => parseInt(document.querySelector('[data-shown-note]')"
        ".textContent.replace(/\\D/g, '')) > than",
        arg=than,
        timeout=within_ms,
    )
    return shown(page)


def stored(client: httpx.Client, run_id: str) -> int:
    return client.get(f"/v1/runs/{run_id}").json()["progress"]["measured"]


def test_points_come_wait_while_paused_and_come_again_after_a_restart(
    browser: Browser, served: Served
):
    with served.client() as client:
        run_id = begin_run(client, MANY, low_water=8)
        device = client.get("/v1/devices").json()["items"][0]["id"]
    about = Dashboard(served.url, served.token, run_id, device, str(served.store))
    watched = Watched(served.url.partition("//")[2])
    # While the service is away nothing of it can be loaded.
    watched.expected = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED", "ERR_EMPTY_RESPONSE")
    with open_context(browser, about) as context, served.client() as client:
        page = context.new_page()
        watched.watch(page)
        page.goto(f"{served.url}/runs/{run_id}")
        live = page.locator("[data-live]")
        expect(live).to_have_text("live")
        some = wait_for_more(page, 3)

        page.locator("[data-pause]").click()
        expect(live).to_have_text("updates paused")
        page.wait_for_timeout(1_000)  # what was on its way comes in
        paused_at, in_store = shown(page), stored(client, run_id)
        while stored(client, run_id) < in_store + 2:
            page.wait_for_timeout(200)
        assert shown(page) == paused_at >= some
        page.locator("[data-pause]").click()
        before = wait_for_more(page, paused_at)

        served.stop()
        expect(live).to_contain_text("not up to date", timeout=30_000)
        served.start_again()
        expect(live).to_have_text("live", timeout=60_000)
        wait_for_more(page, before)

        page.on("dialog", lambda dialog: dialog.accept())
        page.locator("[data-run-action=cancel]").click()
        expect(live).to_have_text("complete", timeout=60_000)
        expect(page.locator("[data-fragment=progress]")).to_contain_text("cancelled")
    assert not watched.unexpected, watched.unexpected
