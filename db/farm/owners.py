"""What is on record of an owner: the token, by its public part, that makes runs and jobs.

An owner has so many bytes stored, for as long as they are there: documents that it posted, what its
runs and operations were asked, answers of operations, and programs and artifacts that its runs were
the first to store. Of equal bytes only the first to store them is counted, whoever else uses them.

A row is written last in a transaction, after runs, jobs and whatever was stored, and rows of
several owners in the order of their names, so that nobody waits in a circle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from db.farm.errors import ConflictError
from db.farm.tables import OwnerRow
from db.transactions import Transactions, insert_if_absent
from mapper.errors import Problem

#: What each thing counts beside its bytes: rows that are about it.
ROW_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class Owner:
    """For whom something is stored, and how many bytes that one may have in all."""

    principal: str
    most_bytes: int


class Owners:
    """What owners have."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def stored_bytes(self, principal: str) -> int:
        """How many bytes an owner has stored."""
        with self._transactions.read() as session:
            row = session.get(OwnerRow, principal)
            return 0 if row is None else row.stored_bytes


def lock_owner(session: Session, principal: str) -> OwnerRow:
    """The row of an owner, locked; made where there is none yet."""
    new = {"principal": principal, "owed_turns": 0, "owed_at": None, "stored_bytes": 0}
    insert_if_absent(session, OwnerRow, new)
    return session.scalars(
        select(OwnerRow).where(OwnerRow.principal == principal).with_for_update(key_share=True),
        execution_options={"populate_existing": True},
    ).one()


def add_bytes(session: Session, principal: str, n_bytes: int) -> int:
    """So many more are stored for an owner, whatever the bound; how many these are now."""
    row = lock_owner(session, principal)
    row.stored_bytes += n_bytes
    session.flush()
    return row.stored_bytes


def add_bytes_within(session: Session, owner: Owner, n_bytes: int) -> None:
    """The same within the bound: ``ConflictError`` where there is no room, which undoes all that
    the transaction has stored."""
    stored = add_bytes(session, owner.principal, n_bytes)
    if stored > owner.most_bytes:
        raise ConflictError(
            Problem(
                "owner",
                "has too many bytes stored",
                f"{stored} with this",
                f"{owner.most_bytes} of a token",
                "wait until operations, kernels and documents that nothing uses are dropped",
            )
        )


def give_back(session: Session, freed: Mapping[str, int]) -> None:
    """What was stored for these owners is no longer there."""
    for principal in sorted(freed):
        left = OwnerRow.stored_bytes - freed[principal]
        session.execute(
            update(OwnerRow).where(OwnerRow.principal == principal).values(stored_bytes=left),
            execution_options={"synchronize_session": False},
        )
