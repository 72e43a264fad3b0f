"""Whose job is next: by priority, then by turns between those who asked.

Start-time fair queueing: a new job's turn is that of the job which is first in its queue now, or
the one after the last that its owner has there, whichever is later. So whoever comes anew is next
after what has begun, and thousands of jobs of another wait their turns. Turns are those of one
priority: a higher one comes before all of them, so that the API gives it to admins alone (a run of
a user has 0, or less: it then waits for everybody). Priority and turn are one
number, ``rank``, along which queues are read upwards. A job counts one turn, and one more for each
second that it was held, however that ended: what waits of its owner is put back by these. Of
proposals the owner owes them, too: the next one of any of its runs is put back while others wait,
and the debt goes down with the time. So many runs have no more of the solvers than one.

Seconds are those of a clock that nobody sets where the process that gave a job out hears of its
end; otherwise none count in which nobody kept the lease. An attempt whose lease ran out has paid
until then; taken back, it pays for the rest.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from datetime import datetime

from sqlalchemy import ColumnElement, case, func, select, update
from sqlalchemy.orm import Session

from db.farm.owners import lock_owner
from db.farm.states import JobKind, JobState
from db.farm.tables import JobAttemptRow, JobRow, OwnerRow

#: Turns of one priority; behind the last all are equal, in the order in which they came.
TURNS = 1_000_000
#: More turns than these no job costs, and nobody owes more.
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

    def ended(self, job: JobRow, claimed_at: datetime, now: datetime) -> float:
        """Its seconds; by the store's clock for what another process gave out, and none where
        the lease had run out."""
        since = self._since.pop((job.id, job.attempt), None)
        if job.lease_until is None:
            return 0.0
        return _kept_s(job, claimed_at, now) if since is None else self._clock() - since


def next_ranks(
    session: Session, priority: int, owner: str, number: int, board_id: str | None = None
) -> list[int]:
    """Ranks for this many new jobs of an owner, in order, in a board's queue or the solvers'."""
    first, start = _start(session, priority, owner, board_id)
    return [min(start + place, first + TURNS - 1) for place in range(number)]


def next_proposal_rank(session: Session, priority: int, owner: str, now: datetime) -> int:
    """The rank of the next proposal of any run of an owner: what the owner owes counts while
    others wait."""
    first, start = _start(session, priority, owner, None)
    others = select(func.min(JobRow.rank)).where(
        *_queue(None, first), JobRow.state.in_(_OPEN), JobRow.principal != owner
    )
    begun = session.scalar(others)
    if begun is not None:
        row = session.get(OwnerRow, owner, populate_existing=True)
        start = max(start, begun + (0 if row is None else _owed(row, now)))
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
    seconds: float,
    now: datetime,
    *,
    charged: int | None = None,
    goes_on: bool = False,
) -> None:
    """:func:`charge` for a lease that ends now and was held for these ``seconds``.

    ``charged``: turns that the attempt has paid before. ``goes_on``: the job is queued again.
    """
    turns = charge(session, job, seconds, charged or 0)
    if not turns:
        return
    if goes_on:
        _put_back(job, turns)
    if job.kind == JobKind.PROPOSE:
        _owe(session, job.principal, turns, now)


def charge_leases(session: Session, which: Iterable[ColumnElement[bool]], now: datetime) -> None:
    """The same for those leased jobs, which are locked from here on: they end now, or have run
    out, and go on or not. What each attempt has paid is noted, for one that is taken back."""
    held = session.execute(
        select(JobRow, JobAttemptRow)
        .join(
            JobAttemptRow,
            (JobAttemptRow.job_id == JobRow.id) & (JobAttemptRow.attempt == JobRow.attempt),
        )
        .where(*which)
        .order_by(JobRow.id)
        # A heartbeat that came first keeps its lease, and costs nothing yet.
        .with_for_update(key_share=True, of=JobRow),
        execution_options={"populate_existing": True},
    ).all()
    owed: Counter[str] = Counter()
    for job, attempt in held:
        turns = charge(session, job, _kept_s(job, attempt.claimed_at, now), attempt.charged or 0)
        if not turns:
            continue
        _put_back(job, turns)
        attempt.charged = (attempt.charged or 0) + turns
        if job.kind == JobKind.PROPOSE:
            owed[job.principal] += turns
    session.flush()
    for owner in sorted(owed):  # in one order, so that nobody waits in a circle
        _owe(session, owner, owed[owner], now)


def _put_back(job: JobRow, turns: int) -> None:
    """A job waits so many turns longer, within those of its priority."""
    job.rank = min(job.rank + turns, -priority_of(job.rank) * TURNS + TURNS - 1)


def _kept_s(job: JobRow, claimed_at: datetime, now: datetime) -> float:
    """Seconds of a lease in which somebody kept it."""
    until = now if job.lease_until is None else min(now, job.lease_until)
    return (until - claimed_at).total_seconds()


def _owe(session: Session, owner: str, turns: int, now: datetime) -> None:
    """An owner owes so many turns more for its proposals."""
    row = lock_owner(session, owner)
    row.owed_turns = min(_owed(row, now) + turns, _MOST_SECONDS)
    row.owed_at = now
    session.flush()


def _owed(row: OwnerRow, now: datetime) -> int:
    """Turns that an owner owes: one less with each second."""
    if row.owed_at is None:
        return 0
    # A clock that was put back makes no debt last longer.
    since = max(0, int((now - row.owed_at).total_seconds()))
    return max(0, row.owed_turns - since)


def charge(session: Session, job: JobRow, seconds: float, charged: int = 0) -> int:
    """Put back what waits of a job's owner in its queue by the seconds that the job took, less
    what was ``charged`` before; by how many turns that was."""
    turns = min(int(seconds), _MOST_SECONDS) - charged
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
