"""One service with one measured run, and Chromium to look at it: shared by all pages' tests.

Every page that a test opens is held against what holds for all of them when the test ends: no
error in the console, no violation of the content security policy, no request to another origin.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.dashboard import screenshots
from tests.dashboard.served import Served, begin_run, wait_for

CHROMIUM = "/usr/bin/chromium"
#: What the second run is of: a sketch that the small layer has on PoCL.
SKETCH = "tile-filter"
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
#: Set it to write the screenshots of docs/dashboard.md.
SCREENSHOTS_WANTED = os.environ.get("NESTMAP_SCREENSHOTS") == "1"
#: A page that is not there by then is not coming.
TIMEOUT_MS = 60_000
expect.set_options(timeout=TIMEOUT_MS)


@dataclass(frozen=True)
class Dashboard:
    """A service with a finished run of a small layer, measured on PoCL."""

    url: str
    token: str
    run_id: str
    device_id: str
    store: str
    #: A run of the same layer under a sketch.
    baselines_id: str = ""

    def client(self) -> httpx.Client:
        """The API with the admin's token; to be closed."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60)


@pytest.fixture(scope="session")
def dashboard(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Dashboard]:
    """The service; processes of pytest-xdist share one, which the last of them stops."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent
    folder = shared / "dashboard-service"
    served: Served | None = None
    with _locked(shared / "dashboard.lock"):
        note = shared / "dashboard.json"
        if note.exists():
            state = json.loads(note.read_text())
        else:
            folder.mkdir()
            served, state = _begun(folder)
        state["users"] += 1
        note.write_text(json.dumps(state))
    try:
        yield Dashboard(**state["about"])
    finally:
        # Whoever started it waits for its end: a pipe of it is read in this process.
        _leave(shared, served)


def _begun(folder: Path) -> tuple[Served, dict[str, Any]]:
    served = Served(folder)
    try:
        with served.client() as client:
            baselines_id = begin_run(client, 3, variants=[SKETCH], label="a sketch")
            run_id = begin_run(client)
            wait_for(client, baselines_id)
            run = wait_for(client, run_id)
            _wait_for_solver(client, run_id)
    except BaseException:
        served.stop()
        raise
    about = {
        "url": served.url,
        "token": served.token,
        "run_id": run_id,
        "device_id": run["device"],
        "store": str(served.store),
        "baselines_id": baselines_id,
    }
    return served, {"users": 0, "pid": served.process.pid, "about": about}


def _wait_for_solver(client: httpx.Client, run_id: str) -> None:
    """A page waits 20 s for the solver, which the first question after a start may take on a slow
    machine; tests of pages begin with one that answers."""
    front = client.get("/v1/fronts", params={"run": run_id}).raise_for_status().json()
    page = f"/candidates/{front['fastest']['candidate']}"
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    while "The solver did not describe" in client.get(page).raise_for_status().text:
        assert time.monotonic() < deadline, "the solver answers no page"


def _leave(shared: Path, served: Served | None) -> None:
    note = shared / "dashboard.json"
    with _locked(shared / "dashboard.lock"):
        state = json.loads(note.read_text())
        state["users"] -= 1
        last = state["users"] == 0
        note.write_text(json.dumps(state))
        if last:
            os.kill(state["pid"], signal.SIGTERM)
    if served is not None:
        served.process.wait(300)
        served.stop()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def worker_id(request: pytest.FixtureRequest) -> str:
    """``gw0`` and so on under pytest-xdist, else ``master``."""
    return getattr(request.config, "workerinput", {}).get("workerid", "master")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, without a window. A module's: its event loop is not left to others."""
    with sync_playwright() as playwright:
        # Tests run as root in containers, where Chromium's own sandbox does not start.
        started = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield started
        started.close()


@dataclass
class Watched:
    """What a page did that none may: filled while it is open."""

    origin: str
    found: list[str] = field(default_factory=list)
    #: Parts of messages that a test expects (a service that is away, say).
    expected: tuple[str, ...] = ()

    def watch(self, page: Page) -> None:
        """Listen to a page."""
        page.on("console", lambda message: self._said(message.type, message.text))
        page.on("pageerror", lambda error: self.found.append(f"error: {error}"))
        page.on("request", lambda request: self._asked(request.url))

    def _said(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.found.append(f"{kind}: {text}")

    def _asked(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != self.origin:
            self.found.append(f"asked another origin: {url}")

    @property
    def unexpected(self) -> list[str]:
        return [text for text in self.found if not any(part in text for part in self.expected)]


@contextmanager
def open_context(
    browser: Browser, dashboard: Dashboard, **options: Any
) -> Iterator[BrowserContext]:
    """A browser's profile that is signed in. ``options`` are Playwright's: ``color_scheme``,
    ``viewport``, ``java_script_enabled``."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    context.set_default_timeout(TIMEOUT_MS)
    context.add_cookies(
        [{"name": "nestmap_session", "value": dashboard.token, "url": dashboard.url,
          "httpOnly": True, "sameSite": "Strict"}]
    )  # fmt: skip
    try:
        yield context
    finally:
        context.close()


@pytest.fixture
def watched(dashboard: Dashboard) -> Watched:
    """What the test's ``page`` did; a test may say what it expects."""
    return Watched(urlsplit(dashboard.url).netloc)


@pytest.fixture
def page(browser: Browser, dashboard: Dashboard, watched: Watched) -> Iterator[Page]:
    """A page of 1280 x 900 in the light scheme, signed in and watched."""
    with open_context(browser, dashboard, color_scheme="light") as context:
        opened = context.new_page()
        watched.watch(opened)
        yield opened
    assert not watched.unexpected, watched.unexpected


def serious_faults(page: Page) -> list[str]:
    """What axe-core finds on the page as it is, of impact serious or critical."""
    # As an isolated script, which the page's policy does not concern.
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate(
        "async () => (await axe.run(document, {resultTypes: ['violations']})).violations"
    )
    return [
        f"{fault['id']} ({fault['impact']}): "
        + "; ".join(f"{node['html'][:160]} {node['failureSummary']}" for node in fault["nodes"][:3])
        for fault in found
        if fault["impact"] in ("serious", "critical")
    ]


def overflow(page: Page) -> int:
    """By how many pixels the page is wider than its window; 0 as it should be."""
    return page.evaluate(
        "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )


#: Scheme, width, and whether CI looks too: screenshots want all four.
LOOKS = (
    ("light", 1280, True),
    ("dark", 360, True),
    ("dark", 1280, False),
    ("light", 360, False),
)


def check_looks(
    browser: Browser, dashboard: Dashboard, path: str, name: str, ready: str, part: str = ""
) -> None:
    """Open a page light and dark, wide and narrow: axe-core finds nothing serious and nothing
    overflows. ``ready`` is a selector that is there once scripts have done their part. Writes
    ``docs/img/dashboard/<name>-<scheme>-<width>.png`` where screenshots are wanted, and one of a
    ``part`` below, ``<name>-<its id>-<scheme>-<width>.png``."""
    for scheme, width, always in LOOKS:
        if not (always or SCREENSHOTS_WANTED):
            continue
        size = {"width": width, "height": 900 if width > 600 else 740}
        with open_context(browser, dashboard, color_scheme=scheme, viewport=size) as context:
            page = context.new_page()
            seen = Watched(urlsplit(dashboard.url).netloc)
            seen.watch(page)
            page.goto(dashboard.url + path)
            page.wait_for_selector(ready, state="attached")
            # What is being asked for anew is dimmed.
            expect(page.locator('[aria-busy="true"]')).to_have_count(0)
            if SCREENSHOTS_WANTED:
                screenshots.take(page, f"{name}-{scheme}-{width}.png", whole=width > 600)
                if part:
                    shot = f"{name}-{part}-{scheme}-{width}.png"
                    screenshots.take(page, shot, whole=False, part=f"#{part}")
            faults = serious_faults(page)
            assert not faults, (scheme, width, faults)
            assert overflow(page) <= 0, (scheme, width, overflow(page))
            assert not seen.unexpected, (scheme, width, seen.unexpected)
