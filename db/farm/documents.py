"""Layers and programs that owners post: kept while something refers to them, or they are used."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import CursorResult, select, update
from sqlalchemy.orm import Session

from db.canonical import content_hash, written_hash
from db.farm.checking import checked_hash, checked_text
from db.farm.errors import absent
from db.farm.owners import ROW_BYTES, Owner, add_bytes_within
from db.records import StoredProgram
from db.store import stored_program
from db.tables import ProgramRow
from db.transactions import Transactions, insert_if_absent, table_of

#: So often it is written that a document is used.
USE_WRITTEN_EVERY = timedelta(hours=1)
_programs = table_of(ProgramRow)


class Documents:
    """Stores and reads what people post. What nobody owns, such as programs of ``nestmap tune``,
    is kept for good."""

    def __init__(self, transactions: Transactions, now: Callable[[], datetime]) -> None:
        self._transactions = transactions
        self._now = now

    def put(self, schema: str, text: str, owner: Owner) -> tuple[str, bool]:
        """Store canonical JSON for an owner unless it is there; its hash, and whether it is new.

        ``ConflictError`` where the owner has no room for it.
        """
        checked_text("schema", schema, most=64, least=1)
        name = content_hash(text)
        if self._used(name) is not None:
            return name, False
        written = written_hash(schema, json.loads(text), name)
        with self._transactions.write() as session:
            now = self._now()
            row = {"hash": name, "schema": schema, "json_text": text}
            row["written_hash"] = written
            row |= {"principal": owner.principal, "touched_at": now}
            while not insert_if_absent(session, ProgramRow, row):
                if touch_programs(session, [name], now):
                    return name, False
                # It was dropped while this transaction waited for its row.
            add_bytes_within(session, owner, len(text) + ROW_BYTES)
        return name, True

    def used(self, name: str) -> StoredProgram:
        """The document of a hash, which is used now; ``AbsentError``."""
        found = self._used(checked_hash("document", name))
        if found is None:
            raise absent("document", name)
        return found

    def _used(self, name: str) -> StoredProgram | None:
        with self._transactions.look() as connection:
            row = connection.execute(select(_programs).where(_programs.c.hash == name)).first()
        if row is None:
            return None
        now = self._now()
        if row.touched_at is not None and now - row.touched_at >= USE_WRITTEN_EVERY:
            with self._transactions.write(durable=False) as session:
                if not touch_programs(session, [name], now):
                    return None
        return stored_program(row)


def touch_programs(session: Session, names: list[str], now: datetime) -> int:
    """Say that these are used, so that pruning, which waits for us, leaves them; how many there
    are."""
    result = session.execute(
        update(ProgramRow).where(ProgramRow.hash.in_(names)).values(touched_at=now),
        execution_options={"synchronize_session": False},
    )
    return cast("CursorResult[Any]", result).rowcount
