"""Answers that are written while they are found, and stop when nobody reads them.

A slow reader slows the producer down: a piece is made only when the server has taken the one
before. A reader that goes away cancels the producer at once, not at its next piece.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any

import anyio
from prometheus_client import Gauge
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.problems import RETRY_SOON, ProblemError, unauthenticated

NDJSON = "application/x-ndjson"
EVENT_STREAM = "text/event-stream"


#: How often the token of whoever reads is looked up again: it is to end within two seconds.
ADMIT_S = 0.5
Admitted = Callable[[], Awaitable[bool]]


class Stream(Response):
    """A response of pieces; the generator is closed whatever happens. It is cut off, without its
    end, once its reader is ``admitted`` no more."""

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        media_type: str,
        headers: Mapping[str, str] | None = None,
        admitted: Admitted | None = None,
    ) -> None:
        super().__init__(None, media_type=media_type)
        del self.headers["content-length"]
        self.headers["Cache-Control"] = "no-store"
        # Proxies that collect an answer before they pass it on are asked not to.
        self.headers["X-Accel-Buffering"] = "no"
        for name, value in (headers or {}).items():
            self.headers[name] = value
        self._pieces = pieces
        self._admitted = admitted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write the pieces until they end or the client has gone."""
        async with anyio.create_task_group() as group, _closing(self._pieces) as pieces:

            async def watch() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                group.cancel_scope.cancel()

            async def watch_token(admitted: Admitted) -> None:
                await _refused(admitted)
                group.cancel_scope.cancel()

            group.start_soon(watch)
            if self._admitted is not None:
                group.start_soon(watch_token, self._admitted)
            await send(
                {"type": "http.response.start", "status": self.status_code,
                 "headers": self.raw_headers}
            )  # fmt: skip
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            group.cancel_scope.cancel()


async def _refused(admitted: Admitted) -> None:
    """Wait until whoever reads is no longer admitted."""
    while await admitted():
        await anyio.sleep(ADMIT_S)


def _closing(pieces: AsyncIterator[bytes]) -> Any:
    return aclosing(pieces)  # pyright: ignore[reportArgumentType]


async def begun(
    pieces: AsyncIterator[bytes], admitted: Admitted | None = None
) -> AsyncIterator[bytes]:
    """The same pieces, once there is a first one: until then a problem can still be a status.

    ProblemError 401 once whoever waits for it is ``admitted`` no more; the pieces are closed.
    """
    first, cut = b"", False
    failure: Exception | None = None
    async with anyio.create_task_group() as group:

        async def watch_token(admitted: Admitted) -> None:
            nonlocal cut, failure
            try:
                await _refused(admitted)
                cut = True
            except Exception as error:
                failure = error
            group.cancel_scope.cancel()

        if admitted is not None:
            group.start_soon(watch_token, admitted)
        try:
            first = await anext(pieces)
        except StopAsyncIteration:
            pass
        except Exception as error:  # as it is: the group would wrap it
            failure = error
        group.cancel_scope.cancel()
    if cut or failure is not None:
        async with _closing(pieces):
            raise failure or unauthenticated("the token is no longer valid")

    async def all_of_them() -> AsyncIterator[bytes]:
        async with _closing(pieces):
            yield first
            async for piece in pieces:
                yield piece

    return all_of_them()


def line(value: Any) -> bytes:
    """One line of NDJSON."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def problem_line(error: ProblemError, instance: str) -> bytes:
    """The last line of a stream that could not be finished."""
    return line({"problem": error.body(instance)})


def event(name: str, data: Any, number: int | str | None = None) -> bytes:
    """One server-sent event; its number comes back as ``Last-Event-ID``."""
    head = "" if number is None else f"id: {number}\n"
    return f"{head}event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


def comment(text: str) -> bytes:
    """A line that event streams ignore, which keeps connections open."""
    return f": {text}\n\n".encode()


class OpenStreams:
    """Counts the streams that are open and refuses more than there may be, of one token and in
    all."""

    def __init__(self, most: int, most_each: int, gauge: Gauge | None = None) -> None:
        self._most = most
        self._most_each = most_each
        self._gauge = gauge
        self._open: Counter[str] = Counter()

    @contextmanager
    def one_more(self, who: str) -> Iterator[None]:
        """Room for one of this token's id; ProblemError 429 or 503 if there is none."""
        if self._open[who] >= self._most_each:
            detail = f"{self._most_each} streams of this token are open"
            raise ProblemError("too-many-requests", detail, headers=RETRY_SOON)
        if self._open.total() >= self._most:
            raise ProblemError("unavailable", f"{self._most} streams are open", headers=RETRY_SOON)
        self._open[who] += 1
        self._show()
        try:
            yield
        finally:
            self._open[who] -= 1
            self._open += Counter()  # forgets whoever has none
            self._show()

    def _show(self) -> None:
        if self._gauge is not None:
            self._gauge.set(self._open.total())
