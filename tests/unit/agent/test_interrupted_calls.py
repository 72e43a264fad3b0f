"""A long poll ends at once when its board is told to stop, on whatever connection it waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from worker.agent.failures import TryAgain
from worker.agent.http_calls import HttpCalls

LONG_S = 30.0


class Polling(BaseHTTPRequestHandler):
    """Answers ``/quick`` at once and ``/poll`` never; the connection is kept open."""

    protocol_version = "HTTP/1.1"
    polls = 0
    polled = threading.Event()
    over = threading.Event()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/poll":
            type(self).polls += 1
            self.polled.set()
            self.over.wait(LONG_S)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.fixture
def calls() -> Iterator[HttpCalls]:
    Polling.polls = 0
    Polling.polled.clear()
    Polling.over.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Polling) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = HttpCalls(f"http://127.0.0.1:{server.server_address[1]}", "")
        yield found
        found.close()
        Polling.over.set()
        server.shutdown()


@pytest.mark.parametrize("reused", [False, True])
def test_a_poll_that_is_interrupted_is_not_sent_again(calls: HttpCalls, reused: bool):
    if reused:
        calls.post("/quick", {})

    def interrupt() -> None:
        assert Polling.polled.wait(LONG_S)
        calls.interrupt()

    threading.Thread(target=interrupt).start()
    started = time.monotonic()
    with pytest.raises(TryAgain):
        calls.post("/poll", {}, timeout_s=LONG_S)
    assert time.monotonic() - started < LONG_S / 2
    assert Polling.polls == 1


def test_a_poll_that_has_not_connected_yet_is_not_begun_and_later_calls_are(calls: HttpCalls):
    calls.interrupt()
    with pytest.raises(TryAgain, match="interrupted"):
        calls.post("/poll", {}, timeout_s=LONG_S)
    assert Polling.polls == 0
    calls.resume()
    assert calls.post("/quick", {}) == (200, {})
