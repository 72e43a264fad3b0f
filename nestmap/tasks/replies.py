"""What a child writes: one JSON object a line, each with the ``id`` of its request.

``begun``, then ``item`` and ``progress`` any number of times, then one ``end`` or one
``problem``. A line that is no request gets a ``problem`` alone.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any, BinaryIO

from mapper.errors import (
    DeviceError,
    InputError,
    LimitError,
    NestmapError,
    Problem,
    UnsatisfiableError,
)
from nestmap.answers import EmptySpaceError

#: Also in api/solver_child.py, which reads no longer line.
MAX_LINE_BYTES = 4 * 2**20
MAX_PROBLEMS = 50
MAX_TEXT = 2_000


class Replies:
    """Writes the replies to one request; whoever reads slowly makes the child wait."""

    def __init__(self, out: BinaryIO, request_id: str) -> None:
        self._out = out
        self._id = request_id
        self._lock = threading.Lock()

    def ready(self, value: Mapping[str, Any]) -> None:
        """The process is ready for requests; this is no reply to any."""
        self._write({"ready": value})

    def begun(self) -> None:
        """The request was read and is worked on: a child that ends without this was not ended
        by it."""
        self._write({"begun": {}})

    def item(self, value: Mapping[str, Any]) -> None:
        """One part of the answer."""
        self._write({"item": value})

    def progress(self, value: Mapping[str, Any]) -> None:
        """How far it is."""
        self._write({"progress": value})

    def end(self, value: Mapping[str, Any]) -> None:
        """The rest of the answer; nothing follows."""
        self._write({"end": value})

    def problem(self, value: Mapping[str, Any]) -> None:
        """There is no answer, or no more of it; nothing follows."""
        self._write({"problem": value})

    def _write(self, value: dict[str, Any]) -> None:
        # ASCII, so that whatever text got into a message can be written.
        line = json.dumps({"id": self._id, **value}, separators=(",", ":"), allow_nan=False)
        if len(line) >= MAX_LINE_BYTES:
            raise LimitError(
                Problem("", "one part of the answer is too long", f"{len(line)} bytes",
                        f"{MAX_LINE_BYTES} bytes")
            )  # fmt: skip
        with self._lock:
            self._out.write(line.encode("ascii") + b"\n")
            self._out.flush()


def problem_of(error: NestmapError) -> dict[str, Any]:
    """An error that nestmap raised on purpose as a ``problem``."""
    match error:
        case EmptySpaceError():
            return problem("unsatisfiable", error.problems, conflict=error.conflict)
        case UnsatisfiableError():
            return problem("unsatisfiable", error.problems)
        case LimitError():
            return problem("too-complex", error.problems)
        case InputError() | DeviceError():
            return problem("invalid-input", error.problems)
        case _:
            return problem("internal", error.problems)


def problem(
    kind: str, problems: tuple[Problem, ...], *, reason: str = "", ends: bool = False, **more: Any
) -> dict[str, Any]:
    """A ``problem``: its ``type`` is one of ``api.problems``, each of ``problems`` says where,
    what was found and what is allowed. ``ends``: the child leaves after it."""
    value: dict[str, Any] = {
        "type": kind,
        "detail": _short(problems[0].message) if problems else "",
        "problems": [
            {
                "field": _short(p.path),
                "message": _short(p.message),
                "found": _short(p.found),
                "allowed": _short(p.allowed),
                "remedy": _short(p.remedy),
            }
            for p in problems[:MAX_PROBLEMS]
        ],
        **more,
    }
    if reason:
        value["reason"] = reason
    if ends:
        value["ends"] = True
    return value


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
