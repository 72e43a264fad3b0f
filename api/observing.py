"""What an operator sees: a request id, one log line and a few counts for every request.

Labels are route templates, never paths, so that their number is bounded. Nothing that a client
sent is logged but its method; of its token only the public id.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import sys
import time
from typing import Any, TextIO

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import ProblemError, ProblemResponse

NO_ROUTE = "(none)"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The metrics of one application, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "nestmap_http_requests",
            "Requests by method, route template and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "nestmap_http_request_seconds",
            "Time until an answer was complete; long polls and streams are left out.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.waiting_boards = Gauge(
            "nestmap_waiting_boards", "Boards in a long poll.", registry=self.registry
        )
        self.open_streams = Gauge(
            "nestmap_open_streams", "Event streams and exports open.", registry=self.registry
        )
        self.open_connections = Gauge(
            "nestmap_open_connections", "Connections of clients.", registry=self.registry
        )
        self.leases = Counter("nestmap_leases", "Jobs leased to boards.", registry=self.registry)
        self.results = Counter(
            "nestmap_results", "Outcomes stored, by kind.", ("kind",), registry=self.registry
        )
        self.expired = Counter(
            "nestmap_leases_expired", "Leases that ran out.", registry=self.registry
        )
        self.solver_tasks = Counter(
            "nestmap_solver_tasks", "Tasks of solver children, by kind and end.",
            ("task", "end"), registry=self.registry,
        )  # fmt: skip
        self.jobs = Gauge(
            "nestmap_jobs", "Jobs that have not ended, by kind and state.",
            ("kind", "state"), registry=self.registry,
        )  # fmt: skip


class LossyLines:
    """Lines to a stream; one that cannot be written, for a full disk or a pipe that nobody reads,
    is lost, and whoever logs it goes on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, message: str) -> None:
        """Write a line."""
        with contextlib.suppress(OSError):
            print(message, file=self._stream, flush=True)

    debug = info = warning = error = critical = msg


def service_logger(level: str, stream: TextIO | None = None) -> Any:
    """A logger of JSON lines to ``stream``, standard error unless given."""
    return structlog.wrap_logger(
        LossyLines(stream or sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(ensure_ascii=True),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
    )


class RequestLog:
    """ASGI middleware, the outermost: names, times, counts and logs a request.

    A fault that nobody handled becomes a problem of type ``internal`` here; its cause goes to
    the log, not to the client.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, logger: Any) -> None:
        self._app = app
        self._metrics = metrics
        self._logger = logger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request within its log line."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = f"req_{secrets.token_hex(8)}"
        scope.setdefault("state", {})["request_id"] = request_id
        started = time.perf_counter()
        status = 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", []), (b"x-request-id", request_id.encode())]
                message = {**message, "headers": headers}
            await send(message)

        fault: BaseException | None = None
        try:
            await self._app(scope, receive, noted)
        except Exception as error:  # a fault of ours: the client gets a problem, not a dead line
            fault = error
            if status:
                raise  # half an answer is out; the server has to cut the line
            await ProblemResponse(ProblemError("internal"), request_id)(scope, receive, noted)
        finally:
            self._note(scope, status or 499, time.perf_counter() - started, fault)

    def _note(self, scope: Scope, status: int, seconds: float, fault: BaseException | None) -> None:
        state: dict[str, Any] = scope.get("state", {})
        route = route_template(scope)
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        self._metrics.requests.labels(method, route, str(status)).inc()
        if not state.get("waits"):
            self._metrics.seconds.labels(route).observe(seconds)
        principal = state.get("principal")
        fields: dict[str, Any] = {
            "request_id": state.get("request_id"),
            "principal": None if principal is None else principal.id,
            "method": method,
            "route": route,
            "status": status,
            "ms": round(seconds * 1e3, 3),
        }
        if fault is not None:
            self._logger.error("fault", exc_info=fault, **fields)
        else:
            self._logger.info("request", **fields)


def route_template(scope: Scope) -> str:
    """The path of the route that a request met, with its parameters by name."""
    route = scope.get("route")
    return getattr(route, "path_format", None) or getattr(route, "path", None) or NO_ROUTE
