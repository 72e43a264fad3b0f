"""Pages by the last row of the page before, so that a page costs the same wherever it is."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, literal, tuple_
from sqlalchemy.orm import InstrumentedAttribute

from db.farm.checking import checked_text, checked_time
from db.farm.records import Keyset
from db.tables import UtcDateTime


def before(
    created_at: InstrumentedAttribute[datetime], name: InstrumentedAttribute[str], after: Keyset
) -> ColumnElement[bool]:
    """Rows that come behind ``after`` in a list with the newest first."""
    checked_time("after.created_at", after.created_at)
    checked_text("after.id", after.id)
    place = tuple_(literal(after.created_at, UtcDateTime()), literal(after.id))
    return tuple_(created_at, name) < place
