"""Whose job is next: by priority, then by turns between those who asked.

Start-time fair queueing: a new job's turn is that of the job which is first in its queue now, or
the one after the last that its owner has there, whichever is later. So whoever comes anew is next
after what has begun, and thousands of jobs of another wait their turns. Priority and turn are one
number, ``rank``, along which queues are read upwards.
"""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.farm.states import JobState
from db.farm.tables import JobRow

#: Turns of one priority; behind the last all are equal, in the order in which they came.
TURNS = 1_000_000
_OPEN = (JobState.QUEUED, JobState.LEASED)


def next_ranks(
    session: Session, priority: int, owner: str, number: int, board_id: str | None = None
) -> list[int]:
    """Ranks for this many new jobs of an owner, in order, in a board's queue or the solvers'."""
    first = -priority * TURNS
    own = func.max(JobRow.rank).filter(JobRow.principal == owner)
    of_queue = JobRow.board_id.is_(None) if board_id is None else JobRow.board_id == board_id
    begun, last = session.execute(
        select(func.min(JobRow.rank), own).where(
            of_queue,
            JobRow.state.in_(_OPEN),
            JobRow.rank >= first,
            JobRow.rank < first + TURNS,
        )
    ).one()
    start = max(first, begun or first, first if last is None else last + 1)
    return [min(start + place, first + TURNS - 1) for place in range(number)]


def priority_of(rank: int) -> int:
    """The priority in a rank."""
    return -(rank // TURNS)
