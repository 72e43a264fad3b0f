"""Whose job is next: by priority, then by turns between those who asked.

Start-time fair queueing: a new job's turn is that of the job which is first in its queue now, or
the one after the last that its owner has there, whichever is later. So whoever comes anew is next
after what has begun, and thousands of jobs of another wait their turns. Turns are those of one
priority: a higher one comes before all of them, so that the API gives it to admins alone (a run of
a user has 0, or less: it then waits for everybody). Priority and turn are one
number, ``rank``, along which queues are read upwards. A job counts one turn, and one more for each
second that it took: what waits of its owner is put back by these.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, case, func, select, update
from sqlalchemy.orm import Session

from db.farm.states import JobState
from db.farm.tables import JobRow

#: Turns of one priority; behind the last all are equal, in the order in which they came.
TURNS = 1_000_000
_MOST_SECONDS = 3_600
_OPEN = (JobState.QUEUED, JobState.LEASED)


def next_ranks(
    session: Session, priority: int, owner: str, number: int, board_id: str | None = None
) -> list[int]:
    """Ranks for this many new jobs of an owner, in order, in a board's queue or the solvers'."""
    first = -priority * TURNS
    own = func.max(JobRow.rank).filter(JobRow.principal == owner)
    begun, last = session.execute(
        select(func.min(JobRow.rank), own).where(*_queue(board_id, first), JobRow.state.in_(_OPEN))
    ).one()
    start = max(first, begun or first, first if last is None else last + 1)
    return [min(start + place, first + TURNS - 1) for place in range(number)]


def charge(session: Session, job: JobRow, seconds: float) -> None:
    """Put back what waits of a job's owner in its queue by the seconds that the job took."""
    turns = min(int(seconds), _MOST_SECONDS)
    if turns < 1:
        return
    first = -priority_of(job.rank) * TURNS
    later, end = JobRow.rank + turns, first + TURNS - 1
    session.execute(
        update(JobRow)
        .where(
            *_queue(job.board_id, first),
            JobRow.state == JobState.QUEUED,
            JobRow.principal == job.principal,
        )
        .values(rank=case((later < end, later), else_=end)),
        execution_options={"synchronize_session": False},
    )


def _queue(board_id: str | None, first: int) -> tuple[ColumnElement[bool], ...]:
    """The jobs of a queue that have the priority whose first turn that is."""
    of_board = JobRow.board_id.is_(None) if board_id is None else JobRow.board_id == board_id
    return of_board, JobRow.rank >= first, JobRow.rank < first + TURNS


def priority_of(rank: int) -> int:
    """The priority in a rank."""
    return -(rank // TURNS)
