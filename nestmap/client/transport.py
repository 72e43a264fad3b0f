"""What both clients share of HTTP: headers, timeouts, bounded bodies, names for what went wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx

from nestmap.client.address import Token
from nestmap.client.calls import MOST_ANSWER_BYTES, Call
from nestmap.client.errors import ServiceError, bad_answer, unreachable
from nestmap.client.replies import PROBLEM_JSON, Reply

CONNECT_S = 10.0
#: The longest that one answer which is not a stream may take to arrive once it has begun.
_BODY_S = 120.0
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


T = TypeVar("T")


def head_deadline_s(call: Call[Any], timeout_s: float) -> float:
    """Seconds within which an answer has to begin, however slowly its head drips."""
    return CONNECT_S + timeout_s + call.waits_s


def within(seconds: float, work: Callable[[], T]) -> T:
    """What ``work`` gives or raises; ``httpx.ReadTimeout`` if it takes longer.

    A timeout of httpx begins anew with every byte. Work that takes too long is left behind in a
    thread that keeps no process alive.
    """
    ended: list[tuple[T | None, BaseException | None]] = []
    done = threading.Event()

    def carry_out() -> None:
        try:
            ended.append((work(), None))
        except BaseException as error:
            ended.append((None, error))
        done.set()

    threading.Thread(target=carry_out, daemon=True).start()
    if not done.wait(seconds):
        raise httpx.ReadTimeout("the head of the answer took too long")
    value, error = ended[0]
    if error is not None:
        raise error
    return value  # pyright: ignore[reportReturnType]


def common_headers(token: Token | None) -> dict[str, str]:
    """Headers of every request."""
    # Not compressed: a small body must not become a large one.
    headers = {"User-Agent": "nestmap-client/1", "Accept-Encoding": "identity"}
    if token is not None:
        headers["Authorization"] = token.header()
    return headers


def request_of(
    http: httpx.Client | httpx.AsyncClient, base: str, call: Call[Any], timeout_s: float
) -> httpx.Request:
    """The request of a call; ``timeout_s`` is for each step of the network."""
    silence = timeout_s + call.waits_s
    timeout = httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s), read=silence)
    return http.build_request(
        call.method,
        f"{base}{call.path}",
        params=list(call.query) or None,
        content=call.body,
        headers=[("Accept", f"{call.accept}, {PROBLEM_JSON}"), *call.headers],
        timeout=timeout,
    )


def is_stream(call: Call[Any], response: httpx.Response) -> bool:
    """Whether the body is to be read as it comes; ServiceError for a compressed one."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise bad_answer("the answer is compressed, though that was not asked for", encoding)
    return call.streamed and response.status_code == 200


def reply_of(response: httpx.Response, body: bytes = b"", opened: Any = None) -> Reply:
    """A response as flows see it."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(response.status_code, headers, body, opened)


class Body:
    """Collects a body within bounds of size and time."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._end = time.monotonic() + _BODY_S

    def add(self, piece: bytes) -> None:
        """One more piece; ServiceError past the bounds."""
        self._size += len(piece)
        if self._size > MOST_ANSWER_BYTES:
            raise bad_answer("the answer is too large", f"over {MOST_ANSWER_BYTES} bytes")
        if time.monotonic() > self._end:
            raise unreachable("the answer takes too long to arrive", f"over {_BODY_S:g} s")
        self._pieces.append(piece)

    def bytes(self) -> bytes:
        """The whole of it."""
        return b"".join(self._pieces)


@contextmanager
def naming_failures(base: str) -> Iterator[None]:
    """ServiceError for what the network does."""
    try:
        yield
    except httpx.TransportError as error:
        raise _lost(base, error) from None
    except httpx.InvalidURL as error:
        raise unreachable(f"{base} cannot be asked", str(error), unsent=True) from None


def _lost(base: str, error: httpx.TransportError) -> ServiceError:
    found = f"{type(error).__name__}: {error}".strip(": ")
    if isinstance(error, _NEVER_SENT):
        return unreachable(f"{base} cannot be reached", found, unsent=True)
    if isinstance(error, httpx.TimeoutException):
        return unreachable(f"{base} does not answer in time", found)
    return unreachable(f"the connection to {base} was lost", found)
