"""A run that goes on: points come to the page, wait while it is paused, and come again after the
service was away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.conftest import Dashboard, Watched, open_context
from tests.dashboard.served import Served, begin_run

pytestmark = pytest.mark.needs("chromium", install="apt-get install chromium")

#: More than the test waits for: it is cancelled in the end.
MANY = 5_000


#: A page that can be told to be hidden, and how many streams of events it has open.
WATCH_STREAMS = """
globalThis.streams = new Set();
globalThis.EventSource = class extends EventSource {
  constructor(url) { super(url); streams.add(this); }
  close() { super.close(); streams.delete(this); }
};
globalThis.hide = (hidden) => {
  Object.defineProperty(document, "hidden", { get: () => hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
};
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service of the module's own, whose device invents times: it measures as fast as it can."""
    started = Served(tmp_path_factory.mktemp("live"), "--worker-device", "null")
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


@contextmanager
def going_on(served: Served) -> Iterator[Dashboard]:
    """A run that has begun; it is cancelled in the end, whatever became of it."""
    with served.client() as client:
        run_id = begin_run(client, MANY, low_water=2, variants=["partial"])
        device = client.get("/v1/devices").json()["items"][0]["id"]
        try:
            yield Dashboard(served.url, served.token, run_id, device, str(served.store))
        finally:
            client.post(f"/v1/runs/{run_id}/cancel")


def test_a_hidden_page_has_no_stream_and_one_that_gets_none_asks_every_five_seconds(
    browser: Browser, served: Served
):
    with going_on(served) as about, open_context(browser, about) as context:
        page = context.new_page()
        watched = Watched(served.url.partition("//")[2])
        watched.watch(page)
        page.add_init_script(WATCH_STREAMS)
        page.goto(f"{served.url}/runs/{about.run_id}")
        live = page.locator("[data-live]")
        expect(live).to_have_text("live")
        some = wait_for_more(page, 3)
        assert page.evaluate("() => streams.size") == 1

        page.evaluate("() => hide(true)")
        assert page.evaluate("() => streams.size") == 0
        page.wait_for_timeout(700)  # what was on its way comes in
        hidden_at = shown(page)
        with served.client() as client:
            in_store = stored(client, about.run_id)
            while stored(client, about.run_id) < in_store + 2:
                page.wait_for_timeout(100)
        assert shown(page) == hidden_at >= some
        page.evaluate("() => hide(false)")
        more = wait_for_more(page, hidden_at)
        assert page.evaluate("() => streams.size") == 1
        assert not watched.unexpected, watched.unexpected

        # The service refuses a stream as it does where a token has too many.
        watched.expected = ("503",)
        page.route("**/events?*", lambda route: route.fulfill(status=503))
        page.evaluate("() => { hide(true); hide(false); }")
        expect(live).to_have_text("every 5 s")
        wait_for_more(page, more)
        assert page.evaluate("() => streams.size") == 0
        assert not watched.unexpected, watched.unexpected


def test_points_come_wait_while_paused_and_come_again_after_a_restart(
    browser: Browser, served: Served
):
    watched = Watched(served.url.partition("//")[2])
    # While the service is away nothing of it can be loaded.
    watched.expected = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED", "ERR_EMPTY_RESPONSE")
    with (
        going_on(served) as about,
        open_context(browser, about) as context,
        served.client() as client,
    ):
        run_id = about.run_id
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
