"""Events of runs and boards, read from any place on.

Ids grow within the database. A run's events (and a board's) are written under the lock of its
row, so that they become visible in the order of their ids: who has read up to one has missed
none before it. Across runs this does not hold on PostgreSQL, and there is no such reader.
"""

from __future__ import annotations

from sqlalchemy import select

from db.farm.checking import checked_integer, checked_limit
from db.farm.errors import absent
from db.farm.records import Event, EventPage
from db.farm.rows import event_of
from db.farm.tables import EventRow, RunRow
from db.transactions import Transactions


class Events:
    """Reads events; they are written by what happens."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def events_after(self, run_id: str, after: int = 0, limit: int = 500) -> EventPage:
        """Events of a run with ids above ``after``, oldest first; 0 for all that are kept.

        ``AbsentError`` for an unknown run.
        """
        checked_integer("after", after)
        rows = (
            select(EventRow)
            .where(EventRow.run_id == run_id, EventRow.id > after)
            .order_by(EventRow.id)
            .limit(checked_limit(limit))
        )
        with self._transactions.read() as session:
            pruned = session.execute(
                select(RunRow.pruned_event_id).where(RunRow.id == run_id)
            ).scalar_one_or_none()
            if pruned is None:
                raise absent("run", run_id)
            return EventPage(tuple(map(event_of, session.scalars(rows))), gap=after < pruned)

    def of_board(self, board_id: str, after: int = 0, limit: int = 500) -> tuple[Event, ...]:
        """Events of a board with ids above ``after``, oldest first."""
        checked_integer("after", after)
        rows = (
            select(EventRow)
            .where(EventRow.board_id == board_id, EventRow.id > after)
            .order_by(EventRow.id)
            .limit(checked_limit(limit))
        )
        with self._transactions.read() as session:
            return tuple(map(event_of, session.scalars(rows)))

    def newest(self, run_id: str) -> int:
        """The id of the run's newest event; 0 if it has none."""
        rows = select(EventRow.id).where(EventRow.run_id == run_id).order_by(EventRow.id.desc())
        with self._transactions.read() as session:
            return session.execute(rows.limit(1)).scalar() or 0
