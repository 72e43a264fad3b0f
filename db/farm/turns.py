"""Whose job is next: by priority, then by turns between those who asked.

Start-time fair queueing: a new job's turn is that of the job which is first in its queue now, or
the one after the last that its owner has there, whichever is later. So whoever comes anew is next
after what has begun, and thousands of jobs of another wait their turns. Turns are those of one
priority: a higher one comes before all of them, so that the API gives it to admins alone (a run of
a user has 0, or less: it then waits for everybody). Priority and turn are one
number, ``rank``, along which queues are read upwards. A job counts one turn, and one more for each
second that it was held, however that ended: what waits of its owner is put back by these, and so
is its run's next proposal while others wait.

Seconds are those of a clock that nobody sets where the process that gave a job out hears of its
end; otherwise none count in which nobody kept the lease.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from datetime import datetime

from sqlalchemy import ColumnElement, case, func, select, update
from sqlalchemy.orm import Session

from db.farm.states import JobKind, JobState
from db.farm.tables import JobAttemptRow, JobRow

#: Turns of one priority; behind the last all are equal, in the order in which they came.
TURNS = 1_000_000
#: More turns than these no job costs, and nobody's next proposal is put back by more.
_MOST_SECONDS = 600
_MOST_REMEMBERED = 10_000
_OPEN = (JobState.QUEUED, JobState.LEASED)


class HeldSeconds:
    """How long leases that this process gave out have been held, by a clock that never jumps."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: OrderedDict[tuple[str, int], float] = OrderedDict()

    def begun(self, job_id: str, attempt: int) -> None:
        """A lease begins now."""
        self._since[job_id, attempt] = self._clock()
        if len(self._since) > _MOST_REMEMBERED:
            self._since.popitem(last=False)

    def ended(self, job_id: str, attempt: int) -> float | None:
        """Its seconds; None for what another process gave out."""
        since = self._since.pop((job_id, attempt), None)
        return None if since is None else self._clock() - since


def next_ranks(
    session: Session, priority: int, owner: str, number: int, board_id: str | None = None
) -> list[int]:
    """Ranks for this many new jobs of an owner, in order, in a board's queue or the solvers'."""
    first, start = _start(session, priority, owner, board_id)
    return [min(start + place, first + TURNS - 1) for place in range(number)]


def next_proposal_rank(
    session: Session, priority: int, owner: str, run_id: str, now: datetime
) -> int:
    """The rank of a run's next proposal: what the last one took counts while others wait, and
    less with each second since."""
    first, start = _start(session, priority, owner, None)
    last = session.execute(
        select(JobRow.rank, JobRow.ended_at)
        .where(JobRow.run_id == run_id, JobRow.kind == JobKind.PROPOSE)
        .order_by(JobRow.id.desc())
        .limit(1)
    ).first()
    others = (
        select(JobRow.id)
        .where(*_queue(None, first), JobRow.state.in_(_OPEN), JobRow.principal != owner)
        .limit(1)
    )
    if last is not None and session.execute(others).first() is not None:
        since = 0 if last.ended_at is None else max(0, int((now - last.ended_at).total_seconds()))
        start = max(start, min(last.rank + 1, start + max(0, _MOST_SECONDS - since)))
    return min(start, first + TURNS - 1)


def _start(session: Session, priority: int, owner: str, board_id: str | None) -> tuple[int, int]:
    """The first turn of a priority, and that of an owner who comes now."""
    first = -priority * TURNS
    own = func.max(JobRow.rank).filter(JobRow.principal == owner)
    begun, last = session.execute(
        select(func.min(JobRow.rank), own).where(*_queue(board_id, first), JobRow.state.in_(_OPEN))
    ).one()
    return first, max(first, begun or first, first if last is None else last + 1)


def charge_lease(
    session: Session,
    job: JobRow,
    claimed_at: datetime,
    now: datetime,
    held_s: float | None = None,
    *,
    goes_on: bool = False,
) -> None:
    """:func:`charge` for a lease that ends now, unless it ran out before, which was charged.

    ``held_s``: what :class:`HeldSeconds` says. ``goes_on``: the job itself is queued again.
    """
    if job.lease_until is None:
        return
    if held_s is None:
        held_s = (min(now, job.lease_until) - claimed_at).total_seconds()
    turns = charge(session, job, held_s)
    if turns and (goes_on or job.kind == JobKind.PROPOSE):
        job.rank = min(job.rank + turns, -priority_of(job.rank) * TURNS + TURNS - 1)


def charge_leases(session: Session, which: Iterable[ColumnElement[bool]], now: datetime) -> None:
    """:func:`charge_lease` for those leased jobs, which are locked: they end now, or have run
    out, and go on or not."""
    held = session.execute(
        select(JobRow, JobAttemptRow.claimed_at)
        .join(
            JobAttemptRow,
            (JobAttemptRow.job_id == JobRow.id) & (JobAttemptRow.attempt == JobRow.attempt),
        )
        .where(*which)
        .order_by(JobRow.id),
        execution_options={"populate_existing": True},
    ).all()
    for job, claimed_at in held:
        charge_lease(session, job, claimed_at, now, goes_on=True)


def charge(session: Session, job: JobRow, seconds: float) -> int:
    """Put back what waits of a job's owner in its queue by the seconds that the job took; by how
    many turns that was."""
    turns = min(int(seconds), _MOST_SECONDS)
    if turns < 1:
        return 0
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
    return turns


def _queue(board_id: str | None, first: int) -> tuple[ColumnElement[bool], ...]:
    """The jobs of a queue that have the priority whose first turn that is."""
    of_board = JobRow.board_id.is_(None) if board_id is None else JobRow.board_id == board_id
    return of_board, JobRow.rank >= first, JobRow.rank < first + TURNS


def priority_of(rank: int) -> int:
    """The priority in a rank."""
    return -(rank // TURNS)
