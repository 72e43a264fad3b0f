"""Connections: how many there may be, how long one may say nothing, and who stands behind one.

The application sees requests. What comes before one (a connection that says nothing, a head that
drips, a reader that does not read) only the protocol of a connection sees, so it is bounded here.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import resource
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import uvicorn
from prometheus_client import Gauge
from uvicorn.protocols.http.h11_impl import H11Protocol

from api.addresses import customer_of, site_of
from api.settings import Settings

#: Files that are no connection of a client: the store, children, logs, the worker's.
_OTHER_FILES = 256
#: The service takes connections even where so few files are allowed.
_FEWEST = 64
#: A connection that has said nothing for so long gives way where there are too many.
_SILENT_S = 1.0
_REFUSED = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n"
    b"Retry-After: 5\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
)
_BODY = (
    b'{"type": "/problems/unavailable", "title": "Not now", "status": 503, '
    b'"detail": "there are too many connections %b"}'
)


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """Most connections in all and of one address, and seconds that one may take.

    ``head_s``: from the connection's beginning, or the end of the answer before, to the end of a
    request's head. ``unread_s``: in which nothing of an answer is read. ``trusted``: networks of
    proxies, whose connections are many people's.
    """

    most: int
    most_each: int
    head_s: float = 10.0
    unread_s: float = 300.0
    trusted: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> ConnectionBounds:
        """As set, and below this process' limit on open files."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = settings.max_connections
        if files != resource.RLIM_INFINITY:
            most = max(_FEWEST, min(most, files - _OTHER_FILES))
        each = max(1, min(settings.max_connections_each, most // 2))
        return cls(most, each, settings.head_timeout_s, settings.unread_timeout_s,
                   settings.proxy_networks())  # fmt: skip


class Seldom:
    """Says a thing once a second at most, and how often it was left unsaid."""

    def __init__(self, say: Callable[..., None], clock: Callable[[], float] = time.monotonic):
        self._say = say
        self._clock = clock
        self._said = -1.0
        self._unsaid = 0

    def __call__(self, event: str, **fields: Any) -> None:
        """Say it now or count it."""
        now = self._clock()
        if now - self._said < 1.0:
            self._unsaid += 1
            return
        self._say(event, **fields, unsaid=self._unsaid)
        self._said, self._unsaid = now, 0


class OpenConnections:
    """The connections of one server, by address, of IPv6 by what one customer has: a /64, and as
    many as half of all with a /48.

    Where there are too many, the one that has been silent for longest is cut for a new one.
    """

    def __init__(
        self,
        bounds: ConnectionBounds,
        say: Seldom,
        gauge: Gauge | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.bounds = bounds
        self.say = say
        self.count = 0
        self._gauge = gauge
        self._clock = clock
        self._each: Counter[str] = Counter()
        #: Since when each has owed a head, the longest first: of all (""), and of each customer
        #: and site.
        self._silent: dict[str, OrderedDict[Callable[[], None], float]] = {"": OrderedDict()}

    def enter(self, address: str) -> str:
        """One more; why it cannot stay, or an empty text. Every one that entered leaves."""
        self.count += 1
        groups = _groups(address)
        for group in groups:
            self._each[group] += 1
        self._show()
        if self.count > self.bounds.most and not self._cut_oldest(""):
            return "to this service"
        if self._is_proxy(address):
            return ""
        most = self.bounds.most_each
        for group in groups:
            if self._each[group] > most and not self._cut_oldest(group):
                return "of this address"
            most = max(most, self.bounds.most // 2)
        return ""

    def leave(self, address: str) -> None:
        """One less."""
        self.count -= 1
        for group in _groups(address):
            self._each[group] -= 1
            if not self._each[group]:
                del self._each[group]
        self._show()

    def is_silent(self, address: str, cut: Callable[[], None]) -> None:
        """From now on a connection owes the head of a request; ``cut`` ends it."""
        self.speaks(address, cut)
        for group in ("", *_groups(address)):
            self._silent.setdefault(group, OrderedDict())[cut] = self._clock()

    def speaks(self, address: str, cut: Callable[[], None]) -> None:
        """It has sent one, or has ended."""
        for group in ("", *_groups(address)):
            silent = self._silent.get(group)
            if silent is not None:
                silent.pop(cut, None)
                if group and not silent:
                    del self._silent[group]

    def _cut_oldest(self, group: str) -> bool:
        """Make room by ending the connection that has been silent for longest; whether there is
        one."""
        for cut, since in self._silent.get(group, {}).items():
            if self._clock() - since < _SILENT_S:
                return False
            cut()  # says itself that it speaks no more
            return True
        return False

    def _is_proxy(self, address: str) -> bool:
        if not self.bounds.trusted:
            return False
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self.bounds.trusted)

    def _show(self) -> None:
        if self._gauge is not None:
            self._gauge.set(self.count)


def _groups(address: str) -> tuple[str, ...]:
    """Whom a connection is counted for: a customer, and the site of a customer of IPv6."""
    site = site_of(address)
    return (customer_of(address), site) if site else (customer_of(address),)


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 of uvicorn on a connection that is counted and timed.

    uvicorn ends a connection that is idle after an answer, until a first byte comes; here the
    clock runs until a whole head is there, from the very beginning.
    """

    open_connections: OpenConnections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count it; answer 503 and close where there are too many."""
        super().connection_made(transport)
        self._head: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._address = self.client[0] if self.client else ""
        refused = self.open_connections.enter(self._address)
        if refused:
            self.open_connections.say("connections", refused=refused, address=self._address)
            body = _BODY % refused.encode()
            transport.write(_REFUSED % (len(body), body))
            transport.close()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it no more."""
        self._drop(self._head)
        self._drop(self._unread)
        self.open_connections.speaks(self._address, self._cut)
        self.open_connections.leave(self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, unless the connection was refused."""
        if not self.transport.is_closing():
            super().data_received(data)

    def handle_events(self) -> None:
        """A head that is complete stops the clock."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._drop(self._head)
            self.open_connections.speaks(self._address, self._cut)

    def on_response_complete(self) -> None:
        """The clock runs for the next head, also while the last bytes are written."""
        before = self.cycle
        super().on_response_complete()
        if self.cycle is before:
            self._await_head()

    def pause_writing(self) -> None:
        """The client reads nothing: it gets some time for that, too."""
        super().pause_writing()
        self._drop(self._unread)
        self._unread = self.loop.call_later(self.open_connections.bounds.unread_s, self._cut)

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        self._drop(self._unread)

    def _await_head(self) -> None:
        self._drop(self._head)
        self._head = self.loop.call_later(self.open_connections.bounds.head_s, self._cut)
        self.open_connections.is_silent(self._address, self._cut)

    def _cut(self) -> None:
        """At once: to close would wait for a client that does not read."""
        self.open_connections.speaks(self._address, self._cut)
        self.transport.abort()

    @staticmethod
    def _drop(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


def bounded_config(app: Any, settings: Settings, logger: Any, **options: Any) -> uvicorn.Config:
    """uvicorn's configuration for an application, with its connections bounded.

    A header ``X-Forwarded-For`` is believed from the proxies that ``settings`` names, and from
    nobody else; uvicorn itself would believe every process of this host.
    """
    gauge = app.state.services.metrics.open_connections
    connections = OpenConnections(ConnectionBounds.of(settings), Seldom(logger.warning), gauge)
    protocol = type("Protocol", (BoundedProtocol,), {"open_connections": connections})
    return uvicorn.Config(
        app, http=protocol, ws="none", proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=settings.proxies or None, log_config=None, access_log=False,
        server_header=False, **options,
    )  # fmt: skip


def note_faults_seldom(loop: asyncio.AbstractEventLoop, logger: Any) -> None:
    """Let the loop say once a second that no file can be opened for a new connection.

    asyncio says it for every place of the backlog, thousands of times a second.
    """
    say = Seldom(logger.error)

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        found = context.get("exception")
        if isinstance(found, OSError) and found.errno in (errno.EMFILE, errno.ENFILE):
            say("connections", refused="no more files can be opened", error=str(found))
            return
        loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
