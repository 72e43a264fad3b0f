"""A server of the lease protocol in a thread: a queue of jobs, leases that run out, faults on call.

It keeps what decision 0015 says and no more, so that what agents do can be held against it
without the API.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

DEVICE = "dev_fake"
TOKEN = "nm_fake.0123456789abcdef0123456789abcdef"
CODE = "AAAAA-BBBBB-CCCCC-DDDDD"


@dataclass
class FakeJob:
    """A job and what came of its attempts."""

    id: str
    payload: dict[str, Any]
    state: str = "queued"
    attempt: int = 0
    token: str = ""
    until: float = 0.0
    results: list[dict[str, Any]] = field(default_factory=list)
    beats: list[dict[str, Any]] = field(default_factory=list)
    released: list[dict[str, Any]] = field(default_factory=list)
    cancel: bool = False


@dataclass
class Fault:
    """What calls to paths with ``part`` in them get instead of an answer, ``times`` times.

    A status, or None to close the connection; ``delay_s`` comes before it.
    """

    part: str
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    times: int = 1
    delay_s: float = 0.0


class FakeServer:
    """Serves on a free port of loopback until it is closed; a context manager."""

    def __init__(
        self,
        *,
        lease_s: float = 30.0,
        first_lease_s: float = 10.0,
        deadline_s: float = 60.0,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.lease_s, self.first_lease_s, self.deadline_s = lease_s, first_lease_s, deadline_s
        self.jobs: dict[str, FakeJob] = {}
        self.artifacts: dict[str, bytes] = {}
        self.faults: deque[Fault] = deque()
        self.calls: list[tuple[float, str, str, dict[str, Any]]] = []
        self.health: list[dict[str, Any]] = []
        self.codes = {CODE}
        self.extra: dict[str, Any] = {}
        self._queue: deque[str] = deque()
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self._closing = False
        handler = type("Handler", (_Handler,), {"fake": self})
        self._http = _Http(("127.0.0.1", port), handler)
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self._scheme = "https" if tls is not None else "http"
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        return self._http.server_address[1]

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}"

    def __enter__(self) -> FakeServer:
        return self

    def __exit__(self, *exception: object) -> None:
        with self.changed:
            self._closing = True
            self.changed.notify_all()
        self._http.shutdown()
        self._http.end_connections()
        self._http.server_close()
        self._thread.join()

    # -- what tests do -----------------------------------------------------------------------

    def store(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self.artifacts[digest] = data
        return digest

    def add_job(self, payload: dict[str, Any], name: str | None = None) -> FakeJob:
        with self.changed:
            job = FakeJob(name or f"job_{len(self.jobs)}", payload)
            self.jobs[job.id] = job
            self._queue.append(job.id)
            self.changed.notify_all()
        return job

    def requeue(self, job: FakeJob) -> None:
        """As the sweeper does with a lease that ran out."""
        with self.changed:
            job.state = "queued"
            self._queue.append(job.id)
            self.changed.notify_all()

    def wait_for(self, condition: Callable[[], Any], timeout_s: float = 30.0) -> None:
        end = time.monotonic() + timeout_s
        with self.changed:
            while not condition():
                left = end - time.monotonic()
                assert left > 0, f"nothing came within {timeout_s} s"
                self.changed.wait(min(left, 0.1))

    def paths(self) -> list[str]:
        with self.lock:
            return [path for _, _, path, _ in self.calls]

    # -- the protocol ------------------------------------------------------------------------

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> Any:
        if method == "POST" and path == "/v1/enrol":
            return self._enrol(body)
        if path == f"/v1/devices/{DEVICE}/lease":
            return self._lease(float(query.get("wait", ["0"])[0]))
        if path == f"/v1/devices/{DEVICE}/health":
            self.health.append(body)
            return 200, {}
        parts = path.split("/")
        if len(parts) == 5 and parts[2] == "jobs" and parts[3] in self.jobs:
            job = self.jobs[parts[3]]
            routes = {"heartbeat": self._beat, "release": self._release, "result": self._result}
            return routes[parts[4]](job, body)
        return 404, problem("not-found")

    def _enrol(self, body: Any) -> Any:
        if body["code"] not in self.codes:
            return 410, problem("gone")
        self.codes.remove(body["code"])
        return 201, {"device": DEVICE, "token": TOKEN, **self.extra}

    def _lease(self, wait_s: float) -> Any:
        end = time.monotonic() + wait_s
        while not self._queue:
            left = end - time.monotonic()
            if left <= 0 or self._closing:
                return 204, None
            self.changed.wait(min(left, 0.05))
        job = self.jobs[self._queue.popleft()]
        job.state, job.attempt, job.token = "leased", job.attempt + 1, secrets.token_hex(8)
        job.until = time.monotonic() + self.first_lease_s
        return 200, {
            "job": job.id,
            "attempt": job.attempt,
            "lease_token": job.token,
            "lease_s": self.first_lease_s,
            "deadline_s": self.deadline_s,
            "payload": job.payload,
            **self.extra,
        }

    def _holds(self, job: FakeJob, body: Any) -> bool:
        return body["attempt"] == job.attempt and body["lease_token"] == job.token

    def _beat(self, job: FakeJob, body: Any) -> Any:
        if not self._holds(job, body) or job.state != "leased":
            return 409, problem("stale-lease")
        job.until = time.monotonic() + self.lease_s
        job.beats.append(body)
        return 200, {"lease_s": self.lease_s, "cancel": job.cancel, **self.extra}

    def _release(self, job: FakeJob, body: Any) -> Any:
        if not self._holds(job, body) or job.state != "leased":
            return 409, problem("stale-lease")
        job.state = "cancelled" if job.cancel else "released"
        job.released.append(body)
        return 200, {"state": job.state, **self.extra}

    def _result(self, job: FakeJob, body: Any) -> Any:
        if not self._holds(job, body):
            return 409, problem("stale-lease")
        if job.state == "done":
            return 200, {"stored": False}
        job.state = "done"
        job.results.append(body)
        return 200, {"stored": True, **self.extra}


def problem(slug: str) -> dict[str, Any]:
    return {"type": f"/problems/{slug}", "title": slug, "detail": f"it is {slug}"}


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open: set[Any] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        for request in list(self._open):
            try:
                request.shutdown(2)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Agents are killed in the middle of calls: that is what tests are for."""


class _Handler(BaseHTTPRequestHandler):
    fake: FakeServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on the terminal."""

    def do_GET(self) -> None:
        self._handle("GET")

    def do_POST(self) -> None:
        self._handle("POST")

    def _handle(self, method: str) -> None:
        fake = self.fake
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        with fake.changed:
            fake.calls.append((time.monotonic(), method, self.path, body))
            fake.changed.notify_all()
            fault = next((f for f in fake.faults if f.part in self.path), None)
            if fault is not None:
                fault.times -= 1
                if fault.times == 0:
                    fake.faults.remove(fault)
        if fault is not None:
            time.sleep(fault.delay_s)
            if fault.status is None:
                self.close_connection = True
                return
            self._send(fault.status, fault.body, fault.headers)
            return
        open_to_all = parts.path == "/v1/enrol"
        if not open_to_all and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._send(401, json.dumps(problem("unauthenticated")).encode())
        elif parts.path.startswith("/v1/artifacts/"):
            data = fake.artifacts.get(parts.path.rpartition("/")[2])
            self._send(404 if data is None else 200, data or b"{}")
        else:
            with fake.changed:
                status, value = fake.answer(method, parts.path, parse_qs(parts.query), body)
                fake.changed.notify_all()
            self._send(status, b"" if value is None else json.dumps(value).encode())

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
