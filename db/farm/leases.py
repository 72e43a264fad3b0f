"""Taking, keeping and losing leases, inside a transaction that the caller has begun."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import ColumnElement, Connection, bindparam, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session
from sqlalchemy.sql.dml import ReturningUpdate

from db.farm.credentials import new_lease_token, same_hash, secret_hash
from db.farm.errors import StaleLease, absent
from db.farm.job_records import Claim, Lease
from db.farm.lifecycle import (
    add_event,
    end_attempt,
    end_job,
    fail_job,
    lock_job,
    lock_runs,
    settle,
)
from db.farm.rows import job_of
from db.farm.run_records import DeviceState
from db.farm.statements import (
    CLAIM_AT_ONCE,
    NEW_ATTEMPT,
    OUTLOOK,
    TAKE_OVER,
)
from db.farm.states import AttemptEnd, EventKind, JobKind, JobState, RunState
from db.farm.tables import BoardRow, JobAttemptRow, JobRow, RunBoardRow, RunRow
from db.farm.turns import charge_leases
from db.tables import DeviceRow, StudyRow
from mapper.errors import Problem

_FRESH = {"populate_existing": True, "synchronize_session": False}
_LOCK_BOARD = (
    select(BoardRow).where(BoardRow.id == bindparam("board")).with_for_update(key_share=True)
).execution_options(populate_existing=True)
#: A claim notes that the board has called, at most this often, as :mod:`db.farm.boards` does.
SEEN_AGAIN = timedelta(seconds=10)
_TAKEN_BACK = (AttemptEnd.DONE, AttemptEnd.FAILED)
#: Made once, as they are asked for every result: the run of ``job``; and ``job`` itself with its
#: attempt ``number`` and the device of its study.
_LOCK_RUN_OF_JOB = (
    select(RunRow)
    .where(
        RunRow.id == select(JobRow.run_id).where(JobRow.id == bindparam("job")).scalar_subquery()
    )
    .with_for_update(key_share=True, of=RunRow)
).execution_options(populate_existing=True)
_LOCK_HELD = (
    select(
        JobRow,
        JobAttemptRow.claimed_at,
        JobAttemptRow.ending,
        JobAttemptRow.charged,
        DeviceRow.name,
        DeviceRow.facts,
    )
    .outerjoin(
        JobAttemptRow,
        (JobAttemptRow.job_id == JobRow.id) & (JobAttemptRow.attempt == bindparam("number")),
    )
    .outerjoin(StudyRow, StudyRow.id == JobRow.study_id)
    .outerjoin(DeviceRow, DeviceRow.id == StudyRow.device_id)
    .where(JobRow.id == bindparam("job"))
    .with_for_update(key_share=True, of=JobRow)
).execution_options(populate_existing=True)

# Any constant does: it names the right to look who is served among PostgreSQL's advisory locks.
_SERVING_LOCK = 0x7365727665
_SERVE_ALONE = select(func.pg_advisory_xact_lock(_SERVING_LOCK))
_SERVE = select(func.pg_advisory_xact_lock_shared(_SERVING_LOCK))


def lock_serving(session: Session, *, alone: bool) -> None:
    """Claim work beside others, or ``alone``: then those who are served, and only they, are seen.

    The first thing that a claim locks. SQLite has one writer.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.execute(_SERVE_ALONE if alone else _SERVE)


def lock_board(session: Session, board_id: str) -> BoardRow:
    """The board, locked against other claims for it; ``AbsentError`` if there is none."""
    row = session.scalars(_LOCK_BOARD, {"board": board_id}).one_or_none()
    if row is None:
        raise absent("board", board_id)
    return row


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a claim for a board will find. ``to_clear``: jobs of its own stand in the way, with a
    lease that ran out or no attempt left; ``shared``: there is something in runs that it stands
    in for."""

    own: bool
    to_clear: bool
    shared: bool

    @property
    def nothing(self) -> bool:
        """Whether a claim need not be tried."""
        return not (self.own or self.to_clear or self.shared)


def outlook_of(connection: Connection, board_id: str, now: datetime) -> Outlook:
    """Without a lock, so that it may be over when the claim comes: whoever asks looks again.

    ``AbsentError`` if there is no such board.
    """
    row = connection.execute(OUTLOOK, {"board": board_id, "now": now}).one_or_none()
    if row is None:
        raise absent("board", board_id)
    return Outlook(*row)


def take(
    session: Session,
    statement: ReturningUpdate[Any],
    which: Mapping[str, Any],
    owner: str,
    lease_s: float,
    now: datetime,
) -> Claim | None:
    """Lease the first claimable job of those that a statement of :mod:`db.farm.statements` is
    about, ``which`` being its parameters: one ``UPDATE … RETURNING``."""
    token = new_lease_token()
    until = now + timedelta(seconds=lease_s)
    values = {**which, "now": now, "until": until, "token_hash": secret_hash(token)}
    row = session.execute(statement, values).one_or_none()
    if row is None:
        return None
    session.execute(
        NEW_ATTEMPT,
        {"job_id": row.id, "attempt": row.attempt, "owner": owner, "claimed_at": now, "reason": ""},
    )
    return Claim(job_of(cast("JobRow", row)), Lease(row.id, row.attempt, token), lease_s)


def claim_at_once(
    connection: Connection, board_id: str, owner: str, lease_s: float, now: datetime
) -> Claim | None:
    """:func:`take` for a board with all that belongs to it, in one statement that is a transaction
    of its own: for PostgreSQL.

    None says that a claim step by step has to find out: there is no job, something stands in its
    way, or the board got another lease in this very moment.
    """
    token = new_lease_token()
    values = {
        "board": board_id,
        "owner": owner,
        "now": now,
        "seen_before": now - SEEN_AGAIN,
        "until": now + timedelta(seconds=lease_s),
        "token_hash": secret_hash(token),
    }
    try:
        row = connection.execute(CLAIM_AT_ONCE, values).one_or_none()
    except IntegrityError:
        return None
    if row is None:
        return None
    return Claim(job_of(cast("JobRow", row)), Lease(row.id, row.attempt, token), lease_s)


def shared_with(board_id: str) -> ColumnElement[bool]:
    """Which jobs are of other boards, in runs that this board measures too."""
    runs = select(RunBoardRow.run_id).where(RunBoardRow.board_id == board_id)
    return (
        JobRow.run_id.in_(runs) & (JobRow.kind == JobKind.MEASURE) & (JobRow.board_id != board_id)
    )


def take_over(session: Session, board_id: str, now: datetime) -> bool:
    """Give the board the first claimable job that others of its runs' boards have waiting.

    It becomes the board's own as it is, queued; a claim follows in the same transaction.
    """
    taken = session.execute(TAKE_OVER, {"board": board_id, "now": now})
    return taken.one_or_none() is not None


def clear_the_way(session: Session, which: ColumnElement[bool], now: datetime, most: int) -> None:
    """Before a claim: put expired jobs back into the queue, and fail those that this claim
    would give to a worker once more than their number of attempts."""
    lapsed = (JobRow.state == JobState.LEASED) & (JobRow.lease_until < now)
    spent = (
        (JobRow.state == JobState.QUEUED)
        & JobRow.held.is_(False)
        & (JobRow.not_before <= now)
        & (JobRow.attempt >= JobRow.max_attempts)
    )
    found = session.execute(
        select(JobRow.id, JobRow.run_id, JobRow.state)
        .where(which, lapsed | spent)
        .order_by(JobRow.id)
        .limit(most)
    ).all()
    if not found:
        return
    runs = lock_runs(session, (run_id for _, run_id, _ in found))
    expire(session, [job_id for job_id, _, state in found if state == JobState.LEASED], runs, now)
    for job_id, _, _ in found:
        _retire(session, lock_job(session, job_id), runs, now)


def take_from_board(session: Session, board_id: str, now: datetime, reason: str) -> None:
    """Put what the board holds back into the queue, whatever its lease says; the caller holds the
    board."""
    held = session.execute(
        select(JobRow.id, JobRow.run_id).where(
            JobRow.board_id == board_id, JobRow.state == JobState.LEASED
        )
    ).all()
    if not held:
        return
    runs = lock_runs(session, (run_id for _, run_id in held))
    ids = [job_id for job_id, _ in held]
    session.execute(
        update(JobRow)
        .where(JobRow.id.in_(ids), JobRow.state == JobState.LEASED, JobRow.board_id == board_id)
        .values(lease_until=now - timedelta(microseconds=1)),
        execution_options={"synchronize_session": False},
    )
    expire(session, ids, runs, now, reason)


def expire(
    session: Session,
    job_ids: Iterable[str],
    runs: dict[str, RunRow],
    now: datetime,
    reason: str = "no sign of life before the lease's end",
) -> list[str]:
    """Put those whose lease has run out back into the queue; the caller holds their runs.

    The attempt stays the newest, so that its result still counts until somebody claims again.
    """
    lapsed = (
        JobRow.id.in_(list(job_ids)),
        JobRow.state == JobState.LEASED,
        JobRow.lease_until < now,
    )
    charge_leases(session, lapsed, now)
    rows = session.scalars(
        update(JobRow)
        .where(*lapsed)
        .values(state=JobState.QUEUED, lease_until=None, not_before=now, rung_at=None)
        .returning(JobRow),
        execution_options=_FRESH,
    ).all()
    of_run: defaultdict[str, list[JobRow]] = defaultdict(list)
    for job in sorted(rows, key=lambda job: job.id):
        end_attempt(session, job, AttemptEnd.EXPIRED, now, reason)
        if job.run_id is not None:
            of_run[job.run_id].append(job)
    for run_id, jobs in sorted(of_run.items()):
        _after_expiry(session, runs[run_id], jobs, now)
    return [row.id for row in rows]


def _after_expiry(session: Session, run: RunRow, jobs: list[JobRow], now: datetime) -> None:
    state = RunState(run.state)
    for job in jobs:
        payload = {"job": job.id, "kind": job.kind, "attempt": job.attempt}
        add_event(session, now, EventKind.JOB_EXPIRED, payload, run_id=run.id)
        if state.ended or state is RunState.CANCELLING:
            # Nobody wants it any more, a late result neither.
            job.lease_hash = None
            end_job(session, job, JobState.CANCELLED, now)
        else:
            job.held = state is RunState.PAUSED
    settle(session, run, now)


def _retire(session: Session, job: JobRow, runs: dict[str, RunRow], now: datetime) -> None:
    """Fail the job if its attempts are used up; this claim counts as the one too many."""
    if job.state != JobState.QUEUED or job.held or job.attempt < job.max_attempts:
        return
    job.lease_hash = None  # its last attempt is no longer the newest
    fail_job(session, job, None if job.run_id is None else runs[job.run_id], now)


@dataclass(frozen=True, slots=True)
class Held:
    """A job with its newest attempt, as its holder ends it; all of it is locked.

    ``repeat``: the attempt was ended by its own holder before. ``charged``: turns that it has paid
    (:mod:`db.farm.turns`). ``device`` has the name and the facts of the device of the job's study,
    where it has one.
    """

    job: JobRow
    run: RunRow | None
    claimed_at: datetime
    charged: int | None
    repeat: bool
    device: DeviceState | None


def held_job(session: Session, lease: Lease, board_id: str | None = None) -> Held:
    """The job of a lease, its run and its newest attempt.

    ``AbsentError`` if there is no such job (of that board, where one is given), ``StaleLease``
    if the attempt is not the newest or its lease was taken away. The attempt may have expired:
    its result still counts.
    """
    # A job's run never changes, so that it can be locked before the job is.
    run = session.scalars(_LOCK_RUN_OF_JOB, {"job": lease.job_id}).one_or_none()
    held = {"job": lease.job_id, "number": lease.attempt}
    found = session.execute(_LOCK_HELD, held).one_or_none()
    if found is None or (board_id is not None and found[0].board_id != board_id):
        raise absent("job", lease.job_id)
    job, claimed_at, ending, charged, name, facts = found
    require_newest(job, lease)
    device = None if name is None else DeviceState(name, facts)
    return Held(job, run, claimed_at, charged, ending in _TAKEN_BACK, device)


def require_newest(job: JobRow, lease: Lease) -> None:
    """Raise ``StaleLease`` unless the lease is that of the job's newest claim."""
    given = secret_hash(lease.token)
    known = job.lease_hash or ""
    if job.attempt == lease.attempt and same_hash(given, known):
        return
    raise StaleLease(
        Problem(
            "lease",
            "somebody else has claimed the job, or it has ended",
            found=f"attempt {str(lease.attempt)[:20]}",
            allowed=f"attempt {job.attempt} with its own token, while the job is {job.state}",
        )
    )
