"""Pages by keyset: an opaque cursor says after what the next page begins."""

from __future__ import annotations

import base64
import binascii
import json
import re
from datetime import datetime
from typing import Annotated, Any

from fastapi import Query

from api.problems import ProblemError
from db.farm.records import Keyset
from mapper.errors import Problem

MAX_PAGE = 500
DEFAULT_PAGE = 100
MAX_CURSOR_CHARACTERS = 2_000
MAX_ID = 64

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Most items of the page")]
CursorQuery = Annotated[
    str | None, Query(max_length=MAX_CURSOR_CHARACTERS, description="`next` of the page before")
]

_NAME = re.compile(r"[A-Za-z0-9_.:+/-]{0,200}")

Key = tuple[int | str, ...]


def encode_cursor(kind: str, key: Key) -> str:
    """The cursor after the element of this key, for lists of this kind."""
    text = json.dumps([kind, *key], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(kind: str, cursor: str | None, *types: type) -> Key | None:
    """The key in a cursor; None without one. ProblemError 422 for one of another list."""
    if cursor is None:
        return None
    values = _values(cursor)
    if (
        len(values) != 1 + len(types)
        or values[0] != kind
        or any(type(v) is not t for v, t in zip(values[1:], types, strict=True))
        or not all(map(_storable, values[1:]))
    ):
        raise _refused(cursor)
    return tuple(values[1:])


def encode_keyset(kind: str, created_at: datetime, name: str) -> str:
    """The cursor after a row of a list by time of creation."""
    return encode_cursor(kind, (created_at.isoformat(), name))


def decode_keyset(kind: str, cursor: str | None) -> Keyset | None:
    """The row in a cursor of such a list; ProblemError 422 for one of another list."""
    key = decode_cursor(kind, cursor, str, str)
    if key is None:
        return None
    try:
        created_at = datetime.fromisoformat(str(key[0]))
    except ValueError:
        raise _refused(cursor or "") from None
    if created_at.tzinfo is None or len(str(key[1])) > MAX_ID:
        raise _refused(cursor or "")
    return Keyset(created_at, str(key[1]))


def _storable(value: int | str) -> bool:
    """Whether a database takes it: 64 bits, or the characters of names and times."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return _NAME.fullmatch(value) is not None


def _values(cursor: str) -> list[Any]:
    padded = cursor + "=" * (-len(cursor) % 4)
    try:
        text = base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True)
        values = json.loads(text)
    except (ValueError, binascii.Error, RecursionError):
        raise _refused(cursor) from None
    if not isinstance(values, list):
        raise _refused(cursor)
    return values


def _refused(cursor: str) -> ProblemError:
    problem = Problem(
        "/cursor", "is not a cursor of this list", repr(cursor[:80]), "next of the page before"
    )
    return ProblemError("invalid-input", problem.message, [problem])
