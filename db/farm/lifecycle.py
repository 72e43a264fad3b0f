"""Steps of runs and jobs inside a transaction that the caller has begun.

Locks are taken in one order everywhere: board, runs by id, jobs. All but claims take the run's
row first, so that its events are numbered in the order of their commits and its counters add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, func, literal_column, select, update
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import set_committed_value

from db.farm.checking import MAX_EVENT_BYTES, checked_json, shown_text
from db.farm.errors import absent
from db.farm.identifiers import JOB_PREFIX, new_identifier
from db.farm.statements import END_ATTEMPT, END_JOB, END_JOB_AND_ATTEMPT, NEW_EVENT, NEW_JOB
from db.farm.states import (
    AttemptEnd,
    EventKind,
    JobKind,
    JobState,
    RunState,
    require_step,
)
from db.farm.tables import JobAttemptRow, JobRow, RunRow
from db.farm.turns import charge_leases, next_proposal_rank
from db.transactions import table_of
from mapper.measurement import OUTCOME_KINDS

MAX_ATTEMPTS = 3
#: So often the sweeper writes how long a run has run, and so much it may have missed of it.
NOTE_ACTIVITY_S = 5.0
MOST_UNSEEN_S = 15.0
_FRESH = {"populate_existing": True}


#: Made once: they are asked for every result.
_LOCK_RUN = (
    select(RunRow).where(RunRow.id == bindparam("run")).with_for_update(key_share=True)
).execution_options(**_FRESH)
_LOCK_JOB = (
    select(JobRow).where(JobRow.id == bindparam("job")).with_for_update(key_share=True)
).execution_options(**_FRESH)
_jobs = table_of(JobRow)
_OPEN_JOBS = (
    select(_jobs.c.kind, _jobs.c.state, func.count())
    .where(_jobs.c.run_id == bindparam("run"), literal_column("state IN ('queued', 'leased')"))
    .group_by(_jobs.c.kind, _jobs.c.state)
)


def lock_run(session: Session, run_id: str) -> RunRow:
    """The run, locked against every other writer; ``AbsentError`` if there is none."""
    row = session.scalars(_LOCK_RUN, {"run": run_id}).one_or_none()
    if row is None:
        raise absent("run", run_id)
    return row


def lock_runs(session: Session, run_ids: Iterable[str | None]) -> dict[str, RunRow]:
    """Several runs, locked in the order of their ids, so that nobody waits in a circle."""
    wanted = sorted({run_id for run_id in run_ids if run_id is not None})
    if not wanted:
        return {}
    # NO KEY UPDATE: whoever adds a row that refers to the run need not wait.
    rows = session.scalars(
        select(RunRow)
        .where(RunRow.id.in_(wanted))
        .order_by(RunRow.id)
        .with_for_update(key_share=True),
        execution_options=_FRESH,
    )
    return {row.id: row for row in rows}


def lock_job(session: Session, job_id: str) -> JobRow:
    """The job, locked; the caller holds its run. ``AbsentError`` if there is none."""
    row = session.scalars(_LOCK_JOB, {"job": job_id}).one_or_none()
    if row is None:
        raise absent("job", job_id)
    return row


def add_event(
    session: Session,
    now: datetime,
    kind: EventKind,
    payload: Mapping[str, Any],
    *,
    run_id: str | None = None,
    board_id: str | None = None,
) -> None:
    """Store an event of a run or a board whose row the caller holds locked."""
    checked_json("event", payload, MAX_EVENT_BYTES)
    row = {"run_id": run_id, "board_id": board_id, "kind": kind, "payload": dict(payload)}
    session.execute(NEW_EVENT, row | {"at": now})


def active_s(run: RunRow, now: datetime) -> float:
    """Seconds that the run has spent running."""
    return run.active_s + seconds_since(run.resumed_at, now)


def seconds_since(resumed_at: datetime | None, now: datetime) -> float:
    """Seconds of a run that :func:`note_activity` has not written yet.

    A clock that jumps, forwards or backwards, and a service that was away count for no more than
    :data:`MOST_UNSEEN_S`.
    """
    if resumed_at is None:
        return 0.0
    return min(max(0.0, (now - resumed_at).total_seconds()), MOST_UNSEEN_S)


def note_activity(run: RunRow, now: datetime) -> None:
    """Write how long a running run has run; the next seconds count from now."""
    run.active_s = active_s(run, now)
    run.resumed_at = now


def set_state(session: Session, run: RunRow, after: RunState, now: datetime, reason: str) -> None:
    """Take a step, keep the clock of the run's activity and store the event.

    ``ConflictError`` for a step that :data:`db.farm.states.RUN_STEPS` does not have.
    """
    before = RunState(run.state)
    require_step(before, after)
    run.active_s = active_s(run, now)
    run.resumed_at = now if after is RunState.RUNNING else None
    run.state = after
    run.reason = shown_text(reason)
    if after is RunState.RUNNING and run.started_at is None:
        run.started_at = now
    if after.ended:
        run.ended_at = now
    payload = {"state": after, "before": before, "reason": run.reason}
    add_event(session, now, EventKind.RUN_STATE, payload, run_id=run.id)


def end_run(
    session: Session,
    run: RunRow,
    after: RunState,
    now: datetime,
    reason: str,
    *,
    has_jobs: bool = True,
) -> None:
    """End the run and drop its open jobs, but for a measurement that is under way: its result
    is stored when it comes. ``has_jobs`` False: none are open."""
    set_state(session, run, after, now, reason)
    if has_jobs:
        cancel_open_jobs(session, run.id, now)


def cancel_open_jobs(session: Session, run_id: str, now: datetime) -> None:
    """Cancel what is queued, and a ``propose`` job under way: its lease becomes stale."""
    under_way = (
        JobRow.run_id == run_id,
        JobRow.state == JobState.LEASED,
        JobRow.kind == JobKind.PROPOSE,
    )
    charge_leases(session, under_way, now)
    dropped = (
        update(JobRow)
        .where(
            JobRow.run_id == run_id,
            (JobRow.state == JobState.QUEUED)
            | ((JobRow.state == JobState.LEASED) & (JobRow.kind == JobKind.PROPOSE)),
        )
        .values(state=JobState.CANCELLED, lease_until=None, lease_hash=None, ended_at=now)
        .returning(JobRow.id)
    )
    ids = list(session.scalars(dropped, execution_options={"synchronize_session": False}))
    if not ids:
        return
    session.execute(
        update(JobAttemptRow)
        .where(JobAttemptRow.job_id.in_(ids), JobAttemptRow.ending.is_(None))
        .values(ending=AttemptEnd.CANCELLED, ended_at=now, reason="the run has ended"),
        execution_options={"synchronize_session": False},
    )


def end_attempt(
    session: Session, job: JobRow, ending: AttemptEnd, now: datetime, reason: str = ""
) -> None:
    """Note how the job's newest attempt ended."""
    ended = {"new_ending": ending, "new_ended_at": now, "new_reason": shown_text(reason)}
    session.execute(END_ATTEMPT, {"job": job.id, "number": job.attempt, **ended})


def end_job(session: Session, job: JobRow, after: JobState, now: datetime) -> None:
    """Make the job final. Its lease's hash stays: a repeat is known by it."""
    session.execute(END_JOB, {"job": job.id, "new_state": after, "new_job_ended_at": now})
    _note_end(job, after, now)


def finish_job(session: Session, job: JobRow, now: datetime) -> None:
    """Make the job done, and its newest attempt with it."""
    if session.get_bind().dialect.name != "postgresql":
        end_attempt(session, job, AttemptEnd.DONE, now)
        end_job(session, job, JobState.DONE, now)
        return
    session.execute(
        END_JOB_AND_ATTEMPT,
        {
            "job": job.id, "new_state": JobState.DONE, "new_job_ended_at": now,
            "number": job.attempt, "new_ending": AttemptEnd.DONE, "new_ended_at": now,
            "new_reason": "",
        },
    )  # fmt: skip
    _note_end(job, JobState.DONE, now)


def _note_end(job: JobRow, after: JobState, now: datetime) -> None:
    """What the database has already: nothing is left to write."""
    for name, value in (("state", after), ("lease_until", None), ("ended_at", now)):
        set_committed_value(job, name, value)


def fail_job(session: Session, job: JobRow, run: RunRow | None, now: datetime) -> None:
    """Make the job failed, with the reasons of all its attempts; its run goes on or fails."""
    end_job(session, job, JobState.FAILED, now)
    if run is None:
        return
    reasons = attempt_reasons(session, job.id)
    payload = {"job": job.id, "kind": job.kind, "candidate": job.candidate_id, "reasons": reasons}
    add_event(session, now, EventKind.JOB_FAILED, payload, run_id=run.id)
    if RunState(run.state).ended:
        return
    if job.kind == JobKind.PROPOSE:
        if RunState(run.state) is RunState.CANCELLING:
            settle(session, run, now)
        else:
            end_run(session, run, RunState.FAILED, now, f"no candidates: {reasons[-1]}")
        return
    run.lost += 1
    settle(session, run, now)


def attempt_reasons(session: Session, job_id: str) -> list[str]:
    """Why each attempt of a job ended, in order."""
    rows = session.execute(
        select(JobAttemptRow.attempt, JobAttemptRow.ending, JobAttemptRow.reason)
        .where(JobAttemptRow.job_id == job_id)
        .order_by(JobAttemptRow.attempt)
    )
    return [f"attempt {number}: {ending}: {reason}" for number, ending, reason in rows]


def tried(run: RunRow) -> int:
    """What counts against the budget of candidates."""
    kinds = (kind.replace("-", "_") for kind in OUTCOME_KINDS)
    return run.lost + sum(getattr(run, kind) for kind in kinds)


def spent_budget(run: RunRow, now: datetime) -> str:
    """``candidates`` or ``seconds`` if that budget is spent, else an empty text."""
    if run.budget_candidates is not None and tried(run) >= run.budget_candidates:
        return "candidates"
    if run.budget_seconds is not None and active_s(run, now) >= run.budget_seconds:
        return "seconds"
    return ""


def settle(session: Session, run: RunRow, now: datetime) -> None:
    """What follows when a job of the run has ended: the end of the run, or more candidates.

    What the job has become is in the database; what the run has become may still be on its way.
    """
    state = RunState(run.state)
    if state.ended:
        return
    open_jobs = _open_jobs(session, run.id)
    leased = sum(n for (_, job_state), n in open_jobs.items() if job_state == JobState.LEASED)
    measures = sum(n for (kind, _), n in open_jobs.items() if kind == JobKind.MEASURE)
    has_jobs = bool(open_jobs)
    if state is RunState.CANCELLING:
        if not leased:
            end_run(session, run, RunState.CANCELLED, now, "cancelled", has_jobs=has_jobs)
        return
    spent = spent_budget(run, now)
    if spent:
        end_run(session, run, RunState.FINISHED, now, spent, has_jobs=has_jobs)
        return
    proposing = sum(open_jobs.values()) > measures
    if run.exhausted and not measures and not proposing:
        end_run(session, run, RunState.FINISHED, now, "exhausted", has_jobs=has_jobs)
        return
    if state is RunState.PAUSED or run.exhausted or proposing or measures >= run.low_water:
        return
    if run.budget_candidates is None or tried(run) + measures < run.budget_candidates:
        add_propose_job(session, run, now)


def add_propose_job(session: Session, run: RunRow, now: datetime) -> str:
    """Queue a job that asks for the run's next candidates."""
    job_id = new_identifier(JOB_PREFIX, now)
    session.execute(
        NEW_JOB,
        job_values(
            job_id,
            JobKind.PROPOSE,
            now,
            run_id=run.id,
            principal=run.principal,
            rank=next_proposal_rank(session, run.priority, run.principal, now),
            payload={"run": run.id},
            held=run.state == RunState.PAUSED,
        ),
    )
    return job_id


def job_values(job_id: str, kind: JobKind, now: datetime, **more: Any) -> dict[str, Any]:
    """All columns of a new job: ``more`` over what a queued job begins with."""
    values: dict[str, Any] = {
        "id": job_id,
        "kind": kind,
        "state": JobState.QUEUED,
        "run_id": None,
        "board_id": None,
        "study_id": None,
        "candidate_id": None,
        "memory_bytes": None,
        "source_hash": None,
        "nestmap_version": None,
        "principal": "",
        "payload": {},
        "result": None,
        "rank": 0,
        "held": False,
        "attempt": 0,
        "max_attempts": MAX_ATTEMPTS,
        "not_before": now,
        "lease_hash": None,
        "lease_until": None,
        "stage": "",
        "rung_at": None,
        "created_at": now,
        "ended_at": None,
    }
    return values | more


def _open_jobs(session: Session, run_id: str) -> dict[tuple[str, str], int]:
    with session.no_autoflush:  # the run's counters are written once, at the end
        counts = session.execute(_OPEN_JOBS, {"run": run_id})
        return {(kind, state): count for kind, state, count in counts}


def runs_to_look_at(session: Session, now: datetime, limit: int) -> list[str]:
    """Running ones whose seconds are spent, or were not written for a while; a clock that was put
    back counts as a while."""
    # The sums are done here: databases differ in how they subtract times.
    rows = session.execute(
        select(RunRow.id, RunRow.budget_seconds, RunRow.active_s, RunRow.resumed_at).where(
            RunRow.state == RunState.RUNNING, RunRow.resumed_at.is_not(None)
        )
    )
    found = [
        run_id
        for run_id, budget_s, spent_s, resumed_at in rows
        if resumed_at is not None
        and (
            not 0 <= (now - resumed_at).total_seconds() < NOTE_ACTIVITY_S
            or (budget_s is not None and spent_s + seconds_since(resumed_at, now) >= budget_s)
        )
    ]
    return sorted(found)[:limit]
