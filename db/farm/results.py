"""The end of a lease with what was found: each is one transaction, and happens once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.canonical import canonical_json
from db.codecs import encode_outcome
from db.farm.checking import MAX_FACTS_BYTES, MAX_PAYLOAD_BYTES, checked_json, checked_time
from db.farm.errors import ConflictError
from db.farm.job_records import Finished, Lease
from db.farm.leases import Held, held_job
from db.farm.lifecycle import add_event, finish_job, set_state, settle, tried
from db.farm.owners import add_bytes
from db.farm.plausible import require_possible
from db.farm.proposals import check_proposal, other_device_study, store_proposal
from db.farm.rows import job_of, run_of
from db.farm.run_records import Proposal
from db.farm.states import BoardState, EventKind, JobKind, JobState, RunState
from db.farm.tables import BoardRow, JobRow, RunRow
from db.farm.turns import HeldSeconds, charge_lease
from db.tables import MeasurementRow
from db.transactions import Transactions, insert_if_absent
from mapper.errors import Problem, StoreError
from mapper.measurement import Outcome, thinned

#: Trials that are kept of a measurement: of more, as many as that in their order.
MOST_TRIALS = 1_000


class Results:
    """Ends leases. All methods raise ``StaleLease`` if the attempt is not the newest of its
    job, ``AbsentError`` for an unknown job, and ``ConflictError`` for one of another kind.

    A repeat of an attempt that has ended changes nothing. An attempt whose lease ran out still
    counts until somebody claims the job again.
    """

    def __init__(
        self, transactions: Transactions, now: Callable[[], datetime], held: HeldSeconds
    ) -> None:
        self._transactions = transactions
        self._now = now
        self._held_seconds = held

    def finish_solve(self, lease: Lease, result: Any) -> Finished:
        """Keep the result (JSON, at most 4 MiB; larger ones are artifacts) with the job."""
        checked_json("result", result, MAX_PAYLOAD_BYTES)
        with self._transactions.write() as session:
            now = self._now()
            held = _held(session, lease, JobKind.SOLVE)
            job, run = held.job, held.run
            if held.repeat:
                return _finished(job, run, now, repeated=True)
            job.result = result
            self._finish(session, held, now)
            add_bytes(session, job.principal, len(canonical_json(result)))
            return _finished(job, run, now, stored=True)

    def finish_propose(self, lease: Lease, proposal: Proposal) -> Finished:
        """Store candidates, artifacts and studies, queue a ``measure`` job for each candidate
        that its study does not have yet, and begin the run if it is queued.

        A proposal without a new candidate, while none is open, means that the space is
        exhausted. Raises ``InputError`` and ``LimitError`` with nothing stored.
        """
        checked = check_proposal(proposal)
        with self._transactions.write() as session:
            now = self._now()
            held = _held(session, lease, JobKind.PROPOSE)
            job, run = held.job, _of_run(held.run)
            if held.repeat:
                return _finished(job, run, now, repeated=True)
            added, n_bytes = store_proposal(session, run, checked, now)
            run.proposed += added
            run.exhausted = run.exhausted or proposal.exhausted
            run.strategy_state = proposal.strategy_state
            run.started_at = run.started_at or now
            self._finish(session, held, now)
            if n_bytes:
                add_bytes(session, run.principal, n_bytes)
            if not added and not run.exhausted:
                run.exhausted = not _measures_open(session, run.id)
            payload = {
                "job": job.id,
                "candidates": added,
                "exhausted": run.exhausted,
                "report": dict(proposal.report),
            }
            add_event(session, now, EventKind.PROPOSED, payload, run_id=run.id)
            if run.state == RunState.QUEUED:
                set_state(session, run, RunState.RUNNING, now, "")
            # An empty proposal is not asked for again at once: a measurement does that.
            if added or run.exhausted:
                settle(session, run, now)
            return _finished(job, run, now, stored=True)

    def finish_measure(
        self,
        lease: Lease,
        outcome: Outcome,
        *,
        facts: Mapping[str, Any],
        started_at: datetime | None = None,
        board_id: str | None = None,
    ) -> Finished:
        """Store a measurement, count it, and go on with the run: more candidates where few are
        left, its end where its budget is spent.

        ``facts`` are the device's at the measurement: where they contradict those of the study
        (another driver, say), the measurement goes to a study of that device. ``started_at`` is
        the board's clock; it is moved to lie between claim and now. A measurement that comes
        while its run is being cancelled is kept. With ``board_id`` the job must be that board's,
        and ``ConflictError`` says that the board is disabled: what it finds is not wanted.
        ``InputError`` for times that cannot be (:mod:`db.farm.plausible`). Of many trials
        :data:`MOST_TRIALS` are kept.
        """
        checked_json("facts", facts, MAX_FACTS_BYTES)
        columns = encode_outcome(thinned(outcome, MOST_TRIALS))
        checked_json("outcome", columns.detail, MAX_FACTS_BYTES)
        if started_at is not None:
            checked_time("started_at", started_at)
        with self._transactions.write() as session:
            now = self._now()
            held = _held(session, lease, JobKind.MEASURE, board_id)
            job, run = held.job, _of_run(held.run)
            if held.repeat:
                return _finished(job, run, now, repeated=True)
            if board_id is not None:
                _require_in_service(session, board_id)
            require_possible(outcome, job.payload, facts, _known_facts(session, held))
            began = held.claimed_at if started_at is None else started_at
            row = {
                "study_id": other_device_study(session, run, job, held.device, facts, now),
                "candidate_id": job.candidate_id,
                "kind": columns.kind,
                "detail": columns.detail,
                "trials": columns.trials,
                "spans": columns.spans,
                "time_ms": columns.time_ms,
                "memory_bytes": job.memory_bytes,
                "board_id": job.board_id,
                "source_hash": job.source_hash,
                "nestmap_version": job.nestmap_version,
                "started_at": min(max(began, held.claimed_at), now),
            }
            stored = insert_if_absent(session, MeasurementRow, row)
            self._finish(session, held, now)
            with session.no_autoflush:  # the run's row is written once, at the end
                if stored:
                    _count(run, job, columns.kind, columns.time_ms)
                payload = {
                    "job": job.id,
                    "study": row["study_id"],
                    "candidate": job.candidate_id,
                    "outcome": columns.kind,
                    "time_ms": columns.time_ms,
                    "memory_bytes": job.memory_bytes,
                    "tried": tried(run),
                    "best_ms": run.best_ms,
                }
                add_event(session, now, EventKind.MEASURED, payload, run_id=run.id)
                settle(session, run, now)
            return _finished(job, run, now, stored=stored)

    def _finish(self, session: Session, held: Held, now: datetime) -> None:
        """End the job, at its owner's expense."""
        held_s = self._held_seconds.ended(held.job, held.claimed_at, now)
        charge_lease(session, held.job, held_s, now, charged=held.charged)
        finish_job(session, held.job, now)


def _held(session: Session, lease: Lease, kind: JobKind, board_id: str | None = None) -> Held:
    held = held_job(session, lease, board_id)
    if held.job.kind != kind:
        raise ConflictError(Problem("job", "is of another kind", held.job.kind, allowed=kind))
    return held


def _require_in_service(session: Session, board_id: str) -> None:
    board = session.get_one(BoardRow, board_id)
    if board.state == BoardState.DISABLED:
        raise ConflictError(
            Problem("device", "is disabled, so its results are not taken", board.reason)
        )


def _known_facts(session: Session, held: Held) -> list[Mapping[str, Any]]:
    """What is on record of the device that measures: its board's facts, and those of the study's
    device, which is another one where a stand-in measures."""
    found: list[Mapping[str, Any]] = []
    board = None if held.job.board_id is None else session.get(BoardRow, held.job.board_id)
    if board is not None:
        found.append(board.facts)
    of_run = held.run is not None and held.run.board_id == held.job.board_id
    if held.device is not None and (of_run or board is None):
        found.append(held.device.facts)
    return found


def _of_run(run: RunRow | None) -> RunRow:
    if run is None:
        raise StoreError("a job of a run has lost its run")
    return run


def _count(run: RunRow, job: JobRow, kind: str, time_ms: float | None) -> None:
    counter = kind.replace("-", "_")
    setattr(run, counter, getattr(run, counter) + 1)
    if time_ms is not None and (run.best_ms is None or time_ms < run.best_ms):
        run.best_ms = time_ms
        run.best_memory_bytes = job.memory_bytes
        run.best_candidate_id = job.candidate_id


def _measures_open(session: Session, run_id: str) -> bool:
    one = select(JobRow.id).where(
        JobRow.run_id == run_id,
        JobRow.kind == JobKind.MEASURE,
        JobRow.state.in_((JobState.QUEUED, JobState.LEASED)),
    )
    return session.execute(one.limit(1)).first() is not None


def _finished(
    job: JobRow, run: RunRow | None, now: datetime, *, stored: bool = False, repeated: bool = False
) -> Finished:
    return Finished(job_of(job), stored, repeated, None if run is None else run_of(run, now))
