"""What is on record of an owner: the token, by its public part, that makes runs and jobs.

A row is written last in a transaction, after runs, jobs and whatever was stored, and rows of
several owners in the order of their names, so that nobody waits in a circle.
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.farm.tables import OwnerRow
from db.transactions import insert_if_absent


def lock_owner(session: Session, principal: str) -> OwnerRow:
    """The row of an owner, locked; made where there is none yet."""
    new = {"principal": principal, "owed_turns": 0, "owed_at": None}
    insert_if_absent(session, OwnerRow, new)
    return session.scalars(
        select(OwnerRow).where(OwnerRow.principal == principal).with_for_update(key_share=True),
        execution_options={"populate_existing": True},
    ).one()
