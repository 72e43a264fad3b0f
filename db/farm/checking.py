"""Bounds on what comes from outside, said before a database would say it in its own words.

PostgreSQL stores no NUL in a text, no database stores half of a surrogate pair, and integers
are of 64 bits.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Any

from db.canonical import canonical_json
from mapper.errors import InputError, LimitError, Problem

MAX_NAME = 200
MAX_REASON = 2_000
MAX_REQUEST_BYTES = 4 << 20
MAX_PAYLOAD_BYTES = 4 << 20
MAX_EVENT_BYTES = 64 << 10
MAX_FACTS_BYTES = 64 << 10
MAX_PAGE = 1_000

_INT64 = 1 << 63
_HASH = re.compile(r"[0-9a-f]{64}")


def checked_text(path: str, text: str, *, most: int = MAX_NAME, least: int = 0) -> str:
    """``text`` if a database can hold it; ``most`` and ``least`` count characters."""
    if not least <= len(text) <= most:
        raise InputError(
            Problem(
                path,
                "is too long or too short",
                found=f"{len(text)} characters",
                allowed=f"{least} to {most}",
            )
        )
    if "\0" in text:
        raise InputError(Problem(path, "holds a NUL", found=ascii(text)[:80]))
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            Problem(path, "holds half of a surrogate pair", found=ascii(text)[:80])
        ) from error
    return text


def shown_text(text: str, most: int = MAX_REASON) -> str:
    """``text`` of a driver or a person with what no database holds spelled out, shortened."""
    clean = text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")
    return clean if len(clean) <= most else clean[: most - 1] + "…"


def checked_integer(path: str, value: int, least: int = 0, most: int = _INT64 - 1) -> int:
    """``value`` if it is an integer within bounds; a bool is none."""
    if type(value) is not int or not least <= value <= most:
        found = str(value)[:40] if not isinstance(value, int) or abs(value) < _INT64 else "beyond"
        raise InputError(Problem(path, "is no integer within bounds", found, f"{least} to {most}"))
    return value


def checked_number(path: str, value: float, least: float, most: float) -> float:
    """``value`` if it is finite and within bounds."""
    if isinstance(value, bool) or not math.isfinite(value) or not least <= value <= most:
        raise InputError(
            Problem(path, "is no number within bounds", str(value)[:40], f"{least} to {most}")
        )
    return float(value)


def checked_hash(path: str, value: str) -> str:
    """``value`` if it is a SHA-256 in lower-case hexadecimal."""
    if not _HASH.fullmatch(value):
        raise InputError(
            Problem(path, "is no SHA-256", ascii(value)[:80], "64 lower-case hexadecimal digits")
        )
    return value


def checked_json(path: str, value: Any, most_bytes: int) -> Any:
    """``value`` if it is JSON (no NaN, no infinity) of at most ``most_bytes``.

    Escapes make any text acceptable: JSON columns are plain text and never taken apart by SQL.
    """
    try:
        size = len(canonical_json(value))
    except InputError as error:
        raise InputError(Problem(path, str(error))) from error
    if size > most_bytes:
        raise LimitError(
            Problem(path, "is too large", f"{size} bytes as JSON", f"at most {most_bytes}")
        )
    return value


def checked_time(path: str, value: datetime) -> datetime:
    """``value`` if it has a zone and is of the years 1 to 9999 in UTC, as which it is stored."""
    if value.tzinfo is None:
        raise InputError(Problem(path, "has no time zone", value.isoformat(), "UTC, say"))
    try:
        value.astimezone(UTC)
    except OverflowError:
        allowed = "years 1 to 9999 in UTC"
        raise InputError(Problem(path, "is no time of UTC", value.isoformat(), allowed)) from None
    return value


def checked_limit(limit: int) -> int:
    """The length of a page."""
    return checked_integer("limit", limit, 1, MAX_PAGE)
