"""Pages by keyset: a cursor says after what the next page begins.

To clients a cursor is opaque. It is the kind of its list and the key of an element, such as
`programs.<hash>`, so that a pattern of the OpenAPI document says exactly what is one.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Query
from pydantic import StringConstraints

from api.problems import ProblemError
from api.schemas.types import NeverNull
from db.farm.identifiers import BOARD_PREFIX, RUN_PREFIX
from db.farm.records import Keyset
from mapper.errors import Problem

MAX_PAGE = 500
DEFAULT_PAGE = 100

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Most items of the page")]

#: Parts of cursors as patterns: microseconds and rows, ids, hashes, digests of questions.
_NUMBER = "[0-9]{1,15}"
_MICROSECONDS = "[0-9]{1,16}"
_HASH = "[0-9a-f]{64}"
_BOARD = f"{BOARD_PREFIX}[0-9a-z]{{26}}"
_RUN = f"{RUN_PREFIX}[0-9a-z]{{26}}"
_TOKEN = "[A-Za-z0-9_-]{1,64}"
_NAME = re.compile(_TOKEN)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NEXT = "`next` of the page before"


def _of(kind: str, *parts: str) -> str:
    return "^" + r"\.".join((kind, *parts)) + "$"


#: Left out, or a cursor: no URL says null.
_IN_QUERY = Query(description=NEXT)
MAPPINGS_CURSOR = _of("mappings", _NUMBER, "[0-9a-f]{16}")
MEASUREMENTS_CURSOR = _of("measurements-(oldest|newest)", _NUMBER)
_OfDevices = Annotated[str, StringConstraints(pattern=_of("devices", _MICROSECONDS, _BOARD))]
DeviceCursor = Annotated[_OfDevices | None, NeverNull(), _IN_QUERY]
_OfRuns = Annotated[str, StringConstraints(pattern=_of("runs", _MICROSECONDS, _RUN))]
RunCursor = Annotated[_OfRuns | None, NeverNull(), _IN_QUERY]
_OfTokens = Annotated[str, StringConstraints(pattern=_of("tokens", _MICROSECONDS, _TOKEN))]
TokenCursor = Annotated[_OfTokens | None, NeverNull(), _IN_QUERY]
_OfHistory = Annotated[str, StringConstraints(pattern=_of("history", _NUMBER))]
HistoryCursor = Annotated[_OfHistory | None, NeverNull(), _IN_QUERY]
_OfStrikes = Annotated[str, StringConstraints(pattern=_of("strikes", _NUMBER))]
StrikeCursor = Annotated[_OfStrikes | None, NeverNull(), _IN_QUERY]
_OfStudies = Annotated[str, StringConstraints(pattern=_of("studies", _NUMBER))]
StudyCursor = Annotated[_OfStudies | None, NeverNull(), _IN_QUERY]
_OfLayers = Annotated[str, StringConstraints(pattern=_of("layers", _HASH))]
LayerCursor = Annotated[_OfLayers | None, NeverNull(), _IN_QUERY]
_OfPrograms = Annotated[str, StringConstraints(pattern=_of("programs", _HASH))]
ProgramCursor = Annotated[_OfPrograms | None, NeverNull(), _IN_QUERY]

Key = tuple[int | str, ...]


def encode_cursor(kind: str, key: Key) -> str:
    """The cursor after the element of this key, for lists of this kind."""
    return ".".join((kind, *map(str, key)))


def decode_cursor(kind: str, cursor: str | None, *types: type) -> Key | None:
    """The key in a cursor; None without one. ProblemError 422 for one of another list."""
    if cursor is None:
        return None
    found, *parts = cursor.split(".")
    if found != kind or len(parts) != len(types):
        raise _refused(cursor)
    return tuple(_part(cursor, part, type_) for part, type_ in zip(parts, types, strict=True))


def encode_keyset(kind: str, created_at: datetime, name: str) -> str:
    """The cursor after a row of a list by time of creation."""
    return encode_cursor(kind, ((created_at - _EPOCH) // timedelta(microseconds=1), name))


def decode_keyset(kind: str, cursor: str | None) -> Keyset | None:
    """The row in a cursor of such a list; ProblemError 422 for one of another list."""
    key = decode_cursor(kind, cursor, int, str)
    if key is None:
        return None
    return Keyset(_EPOCH + timedelta(microseconds=int(key[0])), str(key[1]))


def _part(cursor: str, part: str, type_: type) -> int | str:
    """A number of 16 digits at most, or a name: what every database takes."""
    if type_ is int:
        if re.fullmatch(_MICROSECONDS, part) is None:
            raise _refused(cursor)
        return int(part)
    if _NAME.fullmatch(part) is None:
        raise _refused(cursor)
    return part


def _refused(cursor: str) -> ProblemError:
    problem = Problem(
        "/cursor", "is not a cursor of this list", repr(cursor[:80]), "next of the page before"
    )
    return ProblemError("invalid-input", problem.message, [problem])
