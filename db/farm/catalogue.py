"""What was stored by content, in lists: programs and layers, and candidates by their ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import ColumnElement, select

from db.farm.checking import checked_hash, checked_integer, checked_limit, checked_text
from db.records import CandidateRecord, StoredProgram, Study
from db.store import stored_candidate, stored_program, stored_study
from db.tables import CandidateRow, DeviceRow, ProgramRow, StudyRow
from db.transactions import Transactions

MOST_CANDIDATES = 1_000
_AT_ONCE = 500


class DocumentName(NamedTuple):
    """A stored document without its text."""

    hash: str
    schema: str


class Catalogue:
    """Reads in lists what :class:`db.store.Store` reads one by one."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def documents(
        self, schemas: Iterable[str], *, after: str = "", limit: int = 100
    ) -> tuple[StoredProgram, ...]:
        """Stored documents of these schemas (programs and layers), by hash, from behind
        ``after``."""
        rows = select(ProgramRow).where(*_behind(schemas, after)).order_by(ProgramRow.hash)
        with self._transactions.read() as session:
            return tuple(map(stored_program, session.scalars(rows.limit(checked_limit(limit)))))

    def hashes(
        self, schemas: Iterable[str], *, after: str = "", limit: int = 100
    ) -> tuple[DocumentName, ...]:
        """Hashes and schemas of the same; no text is read, for a program's is up to megabytes."""
        row = ProgramRow
        rows = select(row.hash, row.schema).where(*_behind(schemas, after))
        with self._transactions.read() as session:
            found = session.execute(rows.order_by(row.hash).limit(checked_limit(limit)))
            return tuple(DocumentName(*one) for one in found)

    def studies(self, *, after: int = 0, limit: int = 100) -> tuple[Study, ...]:
        """Studies by their numbers, which is oldest first, from behind ``after``."""
        rows = (
            select(StudyRow)
            .where(StudyRow.id > checked_integer("after", after))
            .order_by(StudyRow.id)
            .limit(checked_limit(limit))
        )
        with self._transactions.read() as session:
            return tuple(map(stored_study, session.scalars(rows)))

    def device_names(self, ids: Iterable[int]) -> dict[int, str]:
        """The names of these devices, by id; those that are not there are left out."""
        wanted = sorted(set(ids))
        found: dict[int, str] = {}
        with self._transactions.read() as session:
            for start in range(0, len(wanted), _AT_ONCE):
                part = wanted[start : start + _AT_ONCE]
                rows = select(DeviceRow.id, DeviceRow.name).where(DeviceRow.id.in_(part))
                found.update((device_id, name) for device_id, name in session.execute(rows))
        return found

    def candidates(self, ids: Iterable[str]) -> dict[str, CandidateRecord]:
        """Those of these candidates that are stored, by id; at most 1,000 of them."""
        wanted = {checked_hash("candidate", candidate_id) for candidate_id in ids}
        checked_integer("candidates", len(wanted), 0, MOST_CANDIDATES)
        rows = select(CandidateRow).where(CandidateRow.id.in_(wanted))
        with self._transactions.read() as session:
            return {row.id: stored_candidate(row) for row in session.scalars(rows)}


def _behind(schemas: Iterable[str], after: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Documents of these schemas behind a hash."""
    wanted = [checked_text("schema", schema) for schema in schemas]
    return ProgramRow.schema.in_(wanted), ProgramRow.hash > checked_text("after", after)
