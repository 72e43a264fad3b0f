"""Bodies: how large they may be, how long they may take, and what JSON is acceptable.

Bytes are counted as they arrive, before anything is parsed; JSON is read by the bounded reader
and then walked once, without recursion, for what a database or a solver would fall over.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, cast

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import ProblemError, ProblemResponse
from mapper.ast_model.bounded_json import TooManyValues, loads_bounded
from mapper.errors import InputError, Problem


@dataclass(frozen=True, slots=True)
class JsonBounds:
    """How much structure a body may have: nested levels, and values of any kind."""

    levels: int = 64
    values: int = 10_000


#: The deepest program of a layer that was seen had 67 levels; nothing valid needs twice as many.
PROGRAM_BOUNDS = JsonBounds(levels=160, values=60_000)
DEFAULT_BOUNDS = JsonBounds()


def read_json(body: bytes, bounds: JsonBounds) -> Any:
    """The JSON value of a body.

    Raises ProblemError: 400 for what is no acceptable JSON, 422 for too much structure.
    """
    try:
        value = loads_bounded(body, max_bytes=max(len(body), 1), max_values=bounds.values)
    except TooManyValues:
        raise _too_complex("values", bounds.values) from None
    except InputError as error:
        problem = error.problems[0]
        raise ProblemError("malformed-json", problem.message, error.problems) from None
    _check_structure(value, bounds)
    return value


def _check_structure(value: object, bounds: JsonBounds) -> None:
    count = 0
    stack: list[tuple[object, int]] = [(value, 1)]
    while stack:
        current, level = stack.pop()
        count += 1
        if level > bounds.levels:
            raise _too_complex("levels", bounds.levels)
        if count + len(stack) > bounds.values:
            raise _too_complex("values", bounds.values)
        if isinstance(current, str):
            _check_text(current)
        elif isinstance(current, dict):
            for key, item in cast("dict[str, object]", current).items():
                _check_text(key)
                stack.append((item, level + 1))
        elif isinstance(current, list):
            stack += [(item, level + 1) for item in cast("list[object]", current)]


def _check_text(text: str) -> None:
    """PostgreSQL stores no NUL, and half of a surrogate pair has no UTF-8."""
    if text.isascii():
        if "\0" in text:
            raise _malformed("a text holds a NUL")
        return
    if "\0" in text:
        raise _malformed("a text holds a NUL")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise _malformed("a text holds half of a surrogate pair") from None


def _malformed(message: str) -> ProblemError:
    return ProblemError("malformed-json", message, [Problem("", message)])


def _too_complex(what: str, limit: int) -> ProblemError:
    message = f"the body has more {what} than are accepted"
    return ProblemError(
        "too-complex", message, [Problem("", message, f"over {limit}", f"{limit} {what}")]
    )


class BoundedRequest(Request):
    """A request whose JSON is read within bounds; FastAPI calls :meth:`json` for bodies."""

    bounds: JsonBounds = DEFAULT_BOUNDS

    async def json(self) -> Any:
        """The body's JSON value, read once."""
        if not hasattr(self, "_bounded_value"):
            self._bounded_value = read_json(await self.body(), self.bounds)
        return self._bounded_value


class BodyLimit:
    """ASGI middleware: 413 for a body of too many bytes, 400 for one that takes too long."""

    def __init__(self, app: ASGIApp, max_bytes: int, timeout_s: float) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body counted and timed."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = _declared_bytes(scope)
        if declared is not None and declared > self._max_bytes:
            await ProblemResponse(self._too_large())(scope, receive, send)
            return
        received = 0
        complete = False
        deadline = asyncio.get_running_loop().time() + self._timeout_s

        async def counted() -> Message:
            nonlocal received, complete
            if complete:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise ProblemError(
                    "malformed-request", f"the body took longer than {self._timeout_s:g} s",
                    headers={"Connection": "close"},
                ) from None  # fmt: skip
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                complete = not message.get("more_body", False)
                if received > self._max_bytes:
                    raise self._too_large()
            return message

        await self._app(scope, counted, send)

    def _too_large(self) -> ProblemError:
        return ProblemError(
            "body-too-large",
            f"at most {self._max_bytes} bytes are accepted",
            headers={"Connection": "close"},
        )


def _declared_bytes(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and len(value) < 20:
            return int(value)
    return None
