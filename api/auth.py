"""Who asks, and what they may reach.

A token is ``nm_<id>.<secret>``; the store keeps a hash of it. Its scope is ``admin``, ``user``
or ``device``; a token of a device names the one device that it is for. Every route states its
:class:`Access`; there is none that is open because nobody thought of it (:mod:`api.routing`).
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.requests import Request

from api.addresses import customer_of, site_of
from api.database import ASKER, Asker
from api.problems import ProblemError, unauthenticated

COOKIE = "nestmap_session"
MAX_TOKEN_CHARACTERS = 200
_TOKEN = re.compile(r"nm_[A-Za-z0-9_-]{1,64}\.[A-Za-z0-9_-]{16,120}")
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_MAX_ADDRESSES = 10_000
_MAX_CACHED = 10_000
_MINUTE_S = 60.0
#: A /48 of IPv6 may fail so many times as often as one of its 65,536 /64.
_OF_A_SITE = 10


class Role(StrEnum):
    """What a token is for."""

    ADMIN = "admin"
    USER = "user"
    DEVICE = "device"


class Access(StrEnum):
    """Who reaches a route. ``OWN_DEVICE`` is a device, and of devices only the one named."""

    PUBLIC = "public"
    USER = "user"
    ADMIN = "admin"
    OWN_DEVICE = "own-device"
    USER_OR_DEVICE = "user-or-device"


_ROLES: dict[Access, frozenset[Role]] = {
    Access.PUBLIC: frozenset(Role),
    Access.USER: frozenset({Role.USER, Role.ADMIN}),
    Access.ADMIN: frozenset({Role.ADMIN}),
    Access.OWN_DEVICE: frozenset({Role.DEVICE}),
    Access.USER_OR_DEVICE: frozenset(Role),
}


@dataclass(frozen=True, slots=True)
class Principal:
    """Whose token it is: ``id`` is the token's public part, for logs; never the secret."""

    id: str
    role: Role
    device_id: str | None = None

    def steers(self, owner: str) -> bool:
        """Whether it may stop or change what the token ``owner`` has made: its own, or as admin."""
        return self.role is Role.ADMIN or self.id == owner


ANONYMOUS = None
#: The id of the token that the request under way was let in with; tasks that it starts inherit it.
ASKING: ContextVar[str] = ContextVar("ASKING", default="")


class Authenticator:
    """Finds the principal of a request and refuses those that may not pass.

    ``verify`` looks a token up; it is asked again for the same token only after ``cache_s``.
    """

    def __init__(
        self,
        verify: Callable[[str], Awaitable[Principal | None]],
        *,
        cache_s: float,
        failures_per_minute: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._verify = verify
        self._cache_s = cache_s
        self._clock = clock
        self._cache: OrderedDict[bytes, tuple[float, Principal]] = OrderedDict()
        self._failures = FailureLimit(failures_per_minute, clock)
        self._failures_of_sites = FailureLimit(_OF_A_SITE * failures_per_minute, clock)

    def forget_tokens(self) -> None:
        """Look every token up again: one was revoked."""
        self._cache.clear()

    async def admit(self, request: Request, access: Access) -> Principal | None:
        """The principal of a request to a route of this access; None for anonymous ones.

        Raises ProblemError 401, 403 or 429.
        """
        if access is Access.PUBLIC:
            return ANONYMOUS
        principal = await self.principal_of(request)
        if principal is None:
            raise unauthenticated("no token was sent")
        if principal.role not in _ROLES[access]:
            raise ProblemError("forbidden", f"a token of scope {principal.role} does not reach it")
        named = request.path_params.get("device_id")
        if principal.role is Role.DEVICE and named is not None and named != principal.device_id:
            raise ProblemError("forbidden", "the token is of another device")
        ASKING.set(principal.id)
        return principal

    async def principal_of(self, request: Request) -> Principal | None:
        """Whose token the request carries; None if it carries none.

        Raises ProblemError 401 for one that is not valid, 429 after too many of these, and 403
        for a cookie that another site may have sent.
        """
        token = token_of(request)
        if token is None:
            return None
        return await self.principal_of_token(token, request.client.host if request.client else "")

    async def principal_of_token(self, token: str, address: str) -> Principal:
        """Whose token it is; ``address`` is the client's, whose failures are counted.

        Raises ProblemError 401 for one that is not valid, 429 after too many of these.
        """
        key = hashlib.sha256(token.encode()).digest()
        now = self._clock()
        cached = self._cache.get(key)
        if cached is not None:
            # Also where it has to be looked up again: that is its own turn, not its address's.
            ASKER.set(_asker(cached[1]))
            if now - cached[0] < self._cache_s:
                return cached[1]
        # Looked up whoever failed before: a good token is not shut out by its neighbours behind
        # one NAT, and to guess one takes longer than the world is old.
        principal = await self._verify(token) if _TOKEN.fullmatch(token) else None
        if principal is None:
            self._cache.pop(key, None)
            ASKER.set(asker_at(address))
            self.failed(address)
            raise unauthenticated("the token is unknown, revoked or expired")
        ASKER.set(_asker(principal))
        self._cache[key] = (now, principal)
        self._cache.move_to_end(key)
        if len(self._cache) > _MAX_CACHED:
            self._cache.popitem(last=False)
        return principal

    async def still_admits(self, request: Request) -> bool:
        """Whether the token of a request that was let in is still valid, whatever is cached."""
        token = token_of(request)
        return token is not None and await self._verify(token) is not None

    def failed(self, address: str) -> None:
        """One more failure of this address; ProblemError 429 if it had too many before."""
        customer, site = customer_of(address), site_of(address)
        self._failures.check(customer)
        if site:
            self._failures_of_sites.check(site)
            self._failures_of_sites.count(site)
        self._failures.count(customer)


class RequestLimit:
    """Lets each token through so often a minute; a token that was quiet may come as often at
    once. For a bounded number of tokens: the one that was quiet for longest is forgotten."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._free: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def count(self, principal: Principal | None) -> None:
        """One request of this token; ProblemError 429 if it has to wait, and how long."""
        if principal is None:
            return
        now, each_s = self._clock(), _MINUTE_S / self._per_minute
        free, since = self._free.get(principal.id, (float(self._per_minute), now))
        free = min(float(self._per_minute), free + (now - since) / each_s)
        if free < 1.0:
            raise ProblemError(
                "too-many-requests",
                f"more than {self._per_minute} requests for a solver in a minute with this token",
                headers={"Retry-After": str(max(1, math.ceil((1.0 - free) * each_s)))},
            )
        self._free[principal.id] = (free - 1.0, now)
        self._free.move_to_end(principal.id)
        if len(self._free) > _MAX_CACHED:
            self._free.popitem(last=False)


class FailureLimit:
    """Counts failures an address within the last minute, for a bounded number of addresses."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def check(self, address: str) -> None:
        """ProblemError 429 if the address has to wait."""
        times = self._recent(address)
        if len(times) >= self._per_minute:
            wait = max(1, int(times[0] + _MINUTE_S - self._clock()) + 1)
            raise ProblemError(
                "too-many-requests",
                "too many failed authentications from this address",
                headers={"Retry-After": str(wait)},
            )

    def count(self, address: str) -> None:
        """One more failure of this address."""
        times = self._recent(address)
        times.append(self._clock())
        self._times[address] = times
        self._times.move_to_end(address)
        if len(self._times) > _MAX_ADDRESSES:
            self._times.popitem(last=False)

    def _recent(self, address: str) -> deque[float]:
        times = self._times.get(address)
        if times is None:
            return deque(maxlen=self._per_minute)
        oldest = self._clock() - _MINUTE_S
        while times and times[0] < oldest:
            times.popleft()
        return times


def token_of(request: Request) -> str | None:
    """The token in the header, else in the dashboard's cookie.

    Raises ProblemError 401 for another header, 403 for a cookie from another site.
    """
    header = request.headers.get("authorization")
    if header is not None:
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token or len(token) > MAX_TOKEN_CHARACTERS:
            raise unauthenticated("the header Authorization is not of the form Bearer nm_…")
        return token.strip()
    token = _cookie(request.headers.get("cookie", ""))
    if token is None:
        return None
    if request.method not in _SAFE_METHODS and not from_this_site(request):
        raise ProblemError("forbidden", "a cookie is not accepted from another site")
    return token


def _cookie(header: str) -> str | None:
    if COOKIE not in header:
        return None
    try:
        morsel = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return None
    if morsel is None or not morsel.value or len(morsel.value) > MAX_TOKEN_CHARACTERS:
        return None
    return morsel.value


def from_this_site(request: Request) -> bool:
    """Whether a browser says that a page of this very origin made the request."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin", "")
    try:
        return bool(origin) and urlsplit(origin).netloc == request.headers.get("host")
    except ValueError:
        return False


def asker_at(address: str) -> Asker:
    """Whoever asks from an address, with no token that is known."""
    return Asker(f"at {customer_of(address)}", first=False)


def _asker(principal: Principal) -> Asker:
    return Asker(principal.id, first=principal.role is Role.DEVICE)
