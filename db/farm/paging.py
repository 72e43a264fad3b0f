"""Pages by the last row of the page before, so that a page costs the same wherever it is."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import accumulate
from typing import TypeVar

from sqlalchemy import ColumnElement, literal, tuple_
from sqlalchemy.orm import InstrumentedAttribute

from db.farm.checking import checked_text, checked_time
from db.farm.records import Keyset
from db.tables import UtcDateTime

K = TypeVar("K")


def before(
    created_at: InstrumentedAttribute[datetime], name: InstrumentedAttribute[str], after: Keyset
) -> ColumnElement[bool]:
    """Rows that come behind ``after`` in a list with the newest first."""
    checked_time("after.created_at", after.created_at)
    checked_text("after.id", after.id)
    place = tuple_(literal(after.created_at, UtcDateTime()), literal(after.id))
    return tuple_(created_at, name) < place


def within(rows: Iterable[tuple[K, int]], most_bytes: int) -> list[K]:
    """Of rows by key and size the first ones, as many as have ``most_bytes`` together; one at
    least."""
    sized = list(rows)
    sums = accumulate(n_bytes for _, n_bytes in sized)
    found = [key for (key, _), total in zip(sized, sums, strict=True) if total <= most_bytes]
    return found or [key for key, _ in sized[:1]]
