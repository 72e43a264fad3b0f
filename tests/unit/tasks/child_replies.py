"""Requests answered in this process, as a child's main loop answers them."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any
from unittest import mock

from nestmap.tasks import known_spaces, limits
from nestmap.tasks.__main__ import Kept, answer
from nestmap.tasks.known_spaces import KnownSpaces
from nestmap.tasks.run_search import Searches

#: A layer whose space is there in a moment.
HIGH_LEVEL: dict[str, Any] = {
    "subject": {"name": "vgg16/7"},
    "variant": "high-level",
    "device": "mali-g72",
}
SMALL_SPACE: dict[str, Any] = {
    "schema": "nestmap/space/1",
    "name": "tiles",
    "parameters": {"tile": [1, 2, 4, 8, 16, 32], "lanes": [1, 2, 4, 8, 16]},
    "constraints": ["tile % lanes == 0"],
}


class Nobody:
    """Stdin where nobody cancels anything."""

    def is_cancelled(self, request: str) -> bool:
        return False

    def forget(self, request: str) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Reply:
    """All replies to one request."""

    items: list[Any]
    progress: list[Any]
    end: Any = None
    problem: Any = None


def fresh() -> Kept:
    return Kept(KnownSpaces(), Searches())


def ask_line(line: bytes, kept: Kept | None = None) -> Reply:
    """Without limits: a test process is larger than a child, so that the address space which a
    request may have would be less than it holds already, and no space would be kept. They are
    tested on real children."""
    out = io.BytesIO()
    with (
        mock.patch.object(limits, "begin"),
        mock.patch.object(limits, "end"),
        mock.patch.object(known_spaces, "resident_bytes", lambda: 0),
    ):
        answer(line, kept or fresh(), out, Nobody())  # pyright: ignore[reportArgumentType]
    replies = [json.loads(text) for text in out.getvalue().splitlines()]
    *before, last = [reply for reply in replies if "begun" not in reply]
    assert all(set(reply) in ({"id", "item"}, {"id", "progress"}) for reply in before)
    assert len({reply["id"] for reply in replies}) == 1
    return Reply(
        [reply["item"] for reply in before if "item" in reply],
        [reply["progress"] for reply in before if "progress" in reply],
        last.get("end"),
        last.get("problem"),
    )


def ask(kept: Kept | None = None, **request: Any) -> Reply:
    return ask_line(json.dumps({"id": "r", **request}).encode() + b"\n", kept)
