"""What is dropped with time, so that the database does not grow without bound.

Devices, studies, candidates, measurements, boards and runs are kept for good, and programs that
these refer to: every candidate stays reproducible from its row, and every figure stays explained.
Owners get back what was counted for them (:mod:`db.farm.owners`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import ColumnElement, CursorResult, Select, Text, delete, func, select
from sqlalchemy import cast as cast_to
from sqlalchemy.orm import InstrumentedAttribute, Session

from db.farm.checking import checked_integer, checked_limit, checked_number
from db.farm.leases import lock_board
from db.farm.lifecycle import lock_run
from db.farm.owners import ROW_BYTES, give_back
from db.farm.records import Pruned
from db.farm.states import JobState, RunState
from db.farm.tables import (
    ArtifactRow,
    EnrolmentRow,
    EventRow,
    IdempotencyRow,
    JobAttemptRow,
    JobRow,
    RunArtifactRow,
    RunRow,
    TokenRow,
)
from db.tables import Base, CandidateRow, ProgramRow, StudyRow
from db.transactions import Transactions

_ENDED_RUNS = tuple(state for state in RunState if state.ended)
_ENDED_JOBS = tuple(state for state in JobState if state.ended)


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How long things are kept, in days; None for ever.

    ``events_kept`` is the number of newest events of each run and board. ``jobs_days`` counts
    from the end of a run; with a run's jobs go its claims on artifacts. ``lone_jobs_days`` counts
    from the end of a job that belongs to none: whoever asked has read its answer.
    ``artifacts_days`` counts from the last time that bytes were stored; what a run still refers to
    stays. ``programs_days`` counts from the last time that a layer or program of an owner was
    stored or used; what a study or candidate refers to stays.
    """

    events_kept: int = 10_000
    events_days: float | None = 90.0
    idempotency_days: float | None = 1.0
    credentials_days: float | None = 30.0
    jobs_days: float | None = 365.0
    lone_jobs_days: float | None = 2.0
    artifacts_days: float | None = 7.0
    programs_days: float | None = 90.0

    def __post_init__(self) -> None:
        checked_integer("events_kept", self.events_kept, 1)
        for field in fields(self):
            days = getattr(self, field.name)
            if field.name.endswith("_days") and days is not None:
                checked_number(field.name, days, 0.0, 36_500.0)


class Retention:
    """Drops what a policy no longer keeps."""

    def __init__(self, transactions: Transactions, now: Callable[[], datetime]) -> None:
        self._transactions = transactions
        self._now = now

    def prune(self, policy: RetentionPolicy, *, limit: int = 200) -> Pruned:
        """One round, over at most ``limit`` runs, boards, artifacts, programs, and jobs without a
        run.
        Call it until it drops nothing any more, once an hour, say."""
        checked_limit(limit)
        with self._transactions.write() as session:
            now = self._now()
            events = _events_of_boards(session, policy, limit)  # boards are locked before runs
            freed: Counter[str] = Counter()
            pruned = Pruned(
                events=events + _events_of_runs(session, policy, now, limit),
                idempotency=_idempotency(session, policy, now),
                enrolments=_enrolments(session, policy, now),
                tokens=_tokens(session, policy, now),
                jobs=_jobs_of_runs(session, policy, now, limit)
                + _lone_jobs(session, _before(policy.lone_jobs_days, now), limit, freed),
                artifacts=_artifacts(session, _before(policy.artifacts_days, now), limit, freed),
                programs=_programs(session, _before(policy.programs_days, now), limit, freed),
            )
            give_back(session, freed)
            return pruned


def _events_of_runs(session: Session, policy: RetentionPolicy, now: datetime, limit: int) -> int:
    """The oldest of long runs, and all of runs that ended long ago."""
    long = _too_many(EventRow.run_id, policy.events_kept, limit)
    last = {run_id: None for run_id in session.scalars(long)}
    if policy.events_days is not None:
        old = (
            select(RunRow.id)
            .where(
                RunRow.state.in_(_ENDED_RUNS),
                RunRow.ended_at < now - timedelta(days=policy.events_days),
                select(EventRow.id).where(EventRow.run_id == RunRow.id).exists(),
            )
            .order_by(RunRow.id)
            .limit(limit)
        )
        last |= {run_id: 0 for run_id in session.scalars(old)}
    dropped = 0
    for run_id in sorted(name for name in last if name is not None):
        kept = policy.events_kept if last[run_id] is None else 0
        run = lock_run(session, run_id)
        newest = _newest_to_drop(session, EventRow.run_id == run_id, kept)
        dropped += _delete(session, EventRow, EventRow.run_id == run_id, EventRow.id <= newest)
        run.pruned_event_id = max(run.pruned_event_id, newest)
    return dropped


def _events_of_boards(session: Session, policy: RetentionPolicy, limit: int) -> int:
    dropped = 0
    names = session.scalars(_too_many(EventRow.board_id, policy.events_kept, limit)).all()
    for board_id in sorted(name for name in names if name is not None):
        lock_board(session, board_id)
        newest = _newest_to_drop(session, EventRow.board_id == board_id, policy.events_kept)
        dropped += _delete(session, EventRow, EventRow.board_id == board_id, EventRow.id <= newest)
    return dropped


def _too_many(
    subject: InstrumentedAttribute[str | None], kept: int, limit: int
) -> Select[str | None]:
    return (
        select(subject)
        .where(subject.is_not(None))
        .group_by(subject)
        .having(func.count() > kept)
        .order_by(subject)
        .limit(limit)
    )


def _newest_to_drop(session: Session, which: ColumnElement[bool], kept: int) -> int:
    """The id of the newest event behind the ``kept`` newest ones; 0 if there is none."""
    rows = select(EventRow.id).where(which).order_by(EventRow.id.desc()).offset(kept).limit(1)
    return session.execute(rows).scalar() or 0


def _idempotency(session: Session, policy: RetentionPolicy, now: datetime) -> int:
    if policy.idempotency_days is None:
        return 0
    before = now - timedelta(days=policy.idempotency_days)
    return _delete(session, IdempotencyRow, IdempotencyRow.created_at < before)


def _enrolments(session: Session, policy: RetentionPolicy, now: datetime) -> int:
    if policy.credentials_days is None:
        return 0
    before = now - timedelta(days=policy.credentials_days)
    return _delete(session, EnrolmentRow, EnrolmentRow.expires_at < before)


def _tokens(session: Session, policy: RetentionPolicy, now: datetime) -> int:
    """Those that have long been of no use; one that was never revoked nor expired stays."""
    if policy.credentials_days is None:
        return 0
    before = now - timedelta(days=policy.credentials_days)
    useless = (TokenRow.revoked_at < before) | (TokenRow.expires_at < before)
    return _delete(session, TokenRow, useless)


def _jobs_of_runs(session: Session, policy: RetentionPolicy, now: datetime, limit: int) -> int:
    """All jobs of runs that ended long ago, and what these runs kept of artifacts."""
    if policy.jobs_days is None:
        return 0
    runs = session.scalars(
        select(RunRow.id)
        .where(
            RunRow.state.in_(_ENDED_RUNS),
            RunRow.ended_at < now - timedelta(days=policy.jobs_days),
            select(JobRow.id).where(JobRow.run_id == RunRow.id).exists(),
            ~select(JobRow.id)
            .where(JobRow.run_id == RunRow.id, JobRow.state.not_in(_ENDED_JOBS))
            .exists(),
        )
        .order_by(RunRow.id)
        .limit(limit)
    ).all()
    jobs = select(JobRow.id).where(JobRow.run_id.in_(runs))
    _delete(session, JobAttemptRow, JobAttemptRow.job_id.in_(jobs))
    _delete(session, RunArtifactRow, RunArtifactRow.run_id.in_(runs))
    return _delete(session, JobRow, JobRow.run_id.in_(runs))


def _lone_jobs(session: Session, before: datetime | None, limit: int, freed: Counter[str]) -> int:
    if before is None:
        return 0
    ids = session.scalars(
        select(JobRow.id)
        .where(JobRow.run_id.is_(None), JobRow.state.in_(_ENDED_JOBS), JobRow.ended_at < before)
        .order_by(JobRow.id)
        .limit(limit)
    ).all()
    _delete(session, JobAttemptRow, JobAttemptRow.job_id.in_(ids))
    asked, answered = (func.length(cast_to(row, Text)) for row in (JobRow.payload, JobRow.result))
    size = asked + func.coalesce(answered, 0)
    return _delete_owned(session, JobRow, JobRow.id.in_(ids), size, freed)


def _artifacts(session: Session, before: datetime | None, limit: int, freed: Counter[str]) -> int:
    """Bytes that no run refers to and nobody has stored lately; their chunks go with them."""
    if before is None:
        return 0
    wanted = select(RunArtifactRow.hash).where(RunArtifactRow.hash == ArtifactRow.hash).exists()
    names = session.scalars(
        select(ArtifactRow.hash)
        .where(ArtifactRow.touched_at < before, ~wanted)
        .order_by(ArtifactRow.hash)
        .limit(limit)
        .with_for_update(skip_locked=True)
    ).all()
    which = ArtifactRow.hash.in_(names)
    return _delete_owned(session, ArtifactRow, which, ArtifactRow.size, freed)


def _programs(session: Session, before: datetime | None, limit: int, freed: Counter[str]) -> int:
    """Documents of owners that nothing refers to and nobody has used lately."""
    if before is None:
        return 0
    wanted = (
        select(StudyRow.id).where(StudyRow.program_hash == ProgramRow.hash).exists()
        | select(CandidateRow.id).where(CandidateRow.program_hash == ProgramRow.hash).exists()
    )
    unused = (ProgramRow.principal.is_not(None), ProgramRow.touched_at < before, ~wanted)
    names = session.scalars(
        select(ProgramRow.hash)
        .where(*unused)
        .order_by(ProgramRow.hash)
        .limit(limit)
        .with_for_update(skip_locked=True)
    ).all()
    # Looked at once more: what came to refer to it before it was locked is seen only now.
    which = ProgramRow.hash.in_(names) & ~wanted
    size = func.length(ProgramRow.json_text)
    return _delete_owned(session, ProgramRow, which, size, freed)


def _before(days: float | None, now: datetime) -> datetime | None:
    """The time up to which things are dropped; None where they are kept for ever."""
    return None if days is None else now - timedelta(days=days)


def _delete_owned(
    session: Session,
    table: type[JobRow | ArtifactRow | ProgramRow],
    which: ColumnElement[bool],
    size: ColumnElement[int] | InstrumentedAttribute[int],
    freed: Counter[str],
) -> int:
    """Delete rows; ``freed`` grows by what each of them counted for its owner. Whoever deletes a
    row gives it back, where two prune at once."""
    gone = session.execute(
        delete(table).where(which).returning(table.principal, size),
        execution_options={"synchronize_session": False},
    ).all()
    for owner, n_bytes in gone:
        if owner is not None:
            freed[owner] += n_bytes + ROW_BYTES
    return len(gone)


def _delete(session: Session, table: type[Base], *which: ColumnElement[bool]) -> int:
    result = session.execute(
        delete(table).where(*which), execution_options={"synchronize_session": False}
    )
    return cast("CursorResult[Any]", result).rowcount
