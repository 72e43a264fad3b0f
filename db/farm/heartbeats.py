"""A lease is kept by heartbeats, or taken back where it ran out and nobody has claimed since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, literal, select
from sqlalchemy.orm import Session

from db.farm.credentials import secret_hash
from db.farm.deadlines import FETCH_S, TIMEOUT_S, attempt_end
from db.farm.errors import StaleLease, absent
from db.farm.job_records import Heartbeat, Lease
from db.farm.leases import lock_board, require_newest
from db.farm.lifecycle import lock_job
from db.farm.statements import CUT_LEASE, KEEP_LEASE, KEEP_LEASE_AT_ONCE, board_is_busy
from db.farm.states import AttemptEnd, BoardState, JobState, RunState
from db.farm.tables import BoardRow, JobAttemptRow, JobRow, RunRow
from db.transactions import Transactions
from mapper.errors import Problem


@dataclass(frozen=True, slots=True)
class Beat:
    """A call for a lease, made ``at`` a time, to be kept for ``lease_s`` seconds from then.
    ``board_id``: whose job it must be, unless that is None."""

    lease: Lease
    at: datetime
    lease_s: float
    stage: str
    board_id: str | None


def keep(transactions: Transactions, beat: Beat) -> Heartbeat:
    """What :meth:`db.farm.jobs.Jobs.heartbeat` does, with values that were checked."""
    now = beat.at
    until = now + timedelta(seconds=beat.lease_s)
    asked = {
        "job": beat.lease.job_id, "number": beat.lease.attempt,
        "until": until, "board": beat.board_id,
        "token_hash": secret_hash(beat.lease.token), "new_stage": beat.stage,
        # Whatever its candidate may take, such an attempt has as much left.
        "young": until - timedelta(seconds=FETCH_S),
    }  # fmt: skip
    if transactions.writes_at_once:
        with transactions.look() as connection:
            kept = connection.execute(KEEP_LEASE_AT_ONCE, asked).one_or_none()
            if kept is not None:
                return _kept(connection, kept, asked, now)
    # One that a crash of the database forgets ends a lease early, which loses no job.
    with transactions.write(durable=False) as session:
        kept = session.execute(KEEP_LEASE, asked).one_or_none()
        if kept is not None:
            return _kept(session, kept, asked, now)
        may_lease = _lock_board_of_lapsed(session, beat.lease, beat.board_id)
        job = lock_job(session, beat.lease.job_id)
        require_newest(job, beat.lease)
        attempt = session.get_one(JobAttemptRow, (job.id, job.attempt))
        lapsed = job.state != JobState.LEASED
        if lapsed and (attempt.ending != AttemptEnd.EXPIRED or not may_lease):
            raise _no_longer_held(job)
        run_state = session.scalar(select(RunRow.state).where(RunRow.id == job.run_id))
        board_state = session.scalar(select(BoardRow.state).where(BoardRow.id == job.board_id))
        end = attempt_end(job.kind, job.payload.get(TIMEOUT_S), attempt.claimed_at)
        if now >= end or _is_unwanted(run_state, board_state):
            return Heartbeat(job.lease_until or now, cancel=True)
        attempt.ending, attempt.ended_at, attempt.reason = None, None, ""
        until = min(until, end)
        job.state, job.lease_until, job.stage = JobState.LEASED, until, beat.stage
        return Heartbeat(until, cancel=False)


def _lock_board_of_lapsed(session: Session, lease: Lease, board_id: str | None) -> bool:
    """Whether a job whose lease has run out may be leased again without a claim.

    Its board is locked then; a job that is leased needs no such lock.
    """
    row = session.execute(
        select(JobRow.board_id, JobRow.state).where(JobRow.id == lease.job_id)
    ).one_or_none()
    if row is None:
        raise absent("job", lease.job_id)
    _require_board(lease, row.board_id, board_id)
    if row.state != JobState.QUEUED:
        return False
    if row.board_id is None:
        return True
    lock_board(session, row.board_id)
    return not session.scalar(select(board_is_busy(literal(row.board_id))))


def _require_board(lease: Lease, board_id: str | None, wanted: str | None) -> None:
    """``AbsentError`` for a job of another board: one learns nothing of what is not its own."""
    if wanted is not None and board_id != wanted:
        raise absent("job", lease.job_id)


def _kept(
    connection: Connection | Session, kept: Any, beat: Mapping[str, Any], now: datetime
) -> Heartbeat:
    """The answer to a heartbeat that found its lease, which ends with its attempt at the latest."""
    end = attempt_end(kept.kind, kept.timeout_s, kept.claimed_at)
    if kept.lease_until > end:
        connection.execute(CUT_LEASE, {**_fence(beat), "end": end})
    cancel = now >= end or _is_unwanted(kept.run_state, kept.board_state)
    return Heartbeat(min(kept.lease_until, end), cancel)


def _fence(beat: Mapping[str, Any]) -> dict[str, Any]:
    return {name: beat[name] for name in ("job", "number", "token_hash")}


def _is_unwanted(run_state: str | None, board_state: str | None) -> bool:
    """Whether nobody wants the result of a job of such a run on such a board."""
    if board_state == BoardState.DISABLED:
        return True
    return run_state is not None and is_ending(run_state)


def is_ending(run_state: str) -> bool:
    """Whether a run in this state gets no more results."""
    state = RunState(run_state)
    return state.ended or state is RunState.CANCELLING


def _no_longer_held(job: JobRow) -> StaleLease:
    return StaleLease(
        Problem("lease", "the job has ended, or its board holds another lease", found=job.state)
    )
