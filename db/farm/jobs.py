"""The queue: jobs are claimed by one statement, kept by heartbeats, and lost when these stop.

What holds, whatever dies: a board has at most one live lease (a unique index says so); a job
that was accepted ends once; a worker whose lease another has taken cannot write. Correctness
does not depend on clocks: a wrong one only ends leases early or late, since every write is
fenced by the attempt's own token.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from datetime import datetime, timedelta

from sqlalchemy import func, insert, select, update
from sqlalchemy.orm import Session

from db.canonical import canonical_json
from db.farm.checking import (
    MAX_PAYLOAD_BYTES,
    checked_integer,
    checked_json,
    checked_limit,
    checked_number,
    checked_text,
    checked_time,
    shown_text,
)
from db.farm.errors import ConflictError, absent
from db.farm.heartbeats import Beat, is_ending, keep
from db.farm.idempotency import Responder, once
from db.farm.identifiers import JOB_PREFIX, new_identifier
from db.farm.job_records import Attempt, Claim, Heartbeat, Job, Lease, NewJob, Swept
from db.farm.leases import (
    SEEN_AGAIN,
    claim_at_once,
    clear_the_way,
    expire,
    held_job,
    lock_serving,
    outlook_of,
    shared_with,
    take,
    take_over,
)
from db.farm.lifecycle import (
    add_event,
    end_attempt,
    end_job,
    end_run,
    fail_job,
    job_values,
    lock_job,
    lock_runs,
    note_activity,
    runs_to_look_at,
    settle,
    spent_budget,
)
from db.farm.owners import ROW_BYTES, Owner, add_bytes, add_bytes_within
from db.farm.records import IdempotencyKey
from db.farm.rows import attempt_of, job_of
from db.farm.run_records import Accepted
from db.farm.statements import (
    ANOTHERS_WORK_WAITS,
    LOCK_BOARD,
    SEEN_NOW,
    TAKE_ANOTHERS_WORK,
    TAKE_FOR_BOARD,
    TAKE_NAMED_WORK,
    TAKE_WORK,
    UNRUNG,
    WORK_WAITS,
    waiting_boards,
)
from db.farm.states import AttemptEnd, BoardState, EventKind, JobKind, JobState, RunState
from db.farm.tables import JobAttemptRow, JobRow
from db.farm.turns import HeldSeconds, charge_lease, next_ranks
from db.transactions import Transactions
from mapper.errors import InputError, Problem

LEAST_LEASE_S = 0.001
MOST_LEASE_S = 3_600.0
MOST_PRIORITY = 100
MOST_ATTEMPTS = 10
#: Lapsed and spent jobs that one claim clears away before it takes its own.
_CLEARED = 20
_WORK = frozenset({JobKind.PROPOSE, JobKind.SOLVE})


class Jobs:
    """Claims, heartbeats and the end of leases without a result; results: ``Results``."""

    def __init__(
        self, transactions: Transactions, now: Callable[[], datetime], held: HeldSeconds
    ) -> None:
        self._transactions = transactions
        self._now = now
        self._held_seconds = held

    def enqueue(
        self,
        new: NewJob,
        idempotency: IdempotencyKey | None = None,
        respond: Responder[Job] | None = None,
    ) -> Accepted[Job]:
        """Queue a ``solve`` job, once for each idempotency key.

        ``respond`` makes the response that is kept with the key from the new job; it must be
        quick and pure. Raises ``InputError``, ``LimitError``, ``IdempotencyKeyReused``, and
        ``ConflictError`` where its owner has no room for it.
        """
        checked_json("payload", new.payload, MAX_PAYLOAD_BYTES)
        checked_text("principal", new.principal)
        checked_integer("priority", new.priority, -MOST_PRIORITY, MOST_PRIORITY)
        checked_integer("max_attempts", new.max_attempts, 1, MOST_ATTEMPTS)
        if new.not_before is not None:
            checked_time("not_before", new.not_before)

        def create(session: Session, now: datetime) -> Job:
            values = job_values(
                new_identifier(JOB_PREFIX, now),
                JobKind.SOLVE,
                now,
                principal=new.principal,
                payload=dict(new.payload),
                rank=next_ranks(session, new.priority, new.principal, 1)[0],
                max_attempts=new.max_attempts,
                not_before=new.not_before or now,
            )
            session.execute(insert(JobRow).values(values))
            n_bytes = len(canonical_json(new.payload)) + ROW_BYTES
            if new.most_bytes is None:
                add_bytes(session, new.principal, n_bytes)
            else:
                add_bytes_within(session, Owner(new.principal, new.most_bytes), n_bytes)
            return job_of(session.get_one(JobRow, values["id"]))

        with self._transactions.write() as session:
            return once(session, self._now(), idempotency, create, _job, respond)

    def job(self, job_id: str) -> Job:
        """The job of an id; ``AbsentError`` if there is none."""
        with self._transactions.read() as session:
            return _job(session, job_id, self._now())

    def board_of(self, job_id: str) -> str | None:
        """The board that is to measure a job; None for other jobs, and where there is none."""
        with self._transactions.read() as session:
            return session.scalar(select(JobRow.board_id).where(JobRow.id == job_id))

    def attempts(self, job_id: str) -> tuple[Attempt, ...]:
        """All claims of a job, oldest first."""
        rows = select(JobAttemptRow).where(JobAttemptRow.job_id == job_id)
        with self._transactions.read() as session:
            return tuple(map(attempt_of, session.scalars(rows.order_by(JobAttemptRow.attempt))))

    def of_run(self, run_id: str, *, after: str = "", limit: int = 500) -> tuple[Job, ...]:
        """Jobs of a run in the order of their ids, after one of them."""
        rows = (
            select(JobRow)
            .where(JobRow.run_id == run_id, JobRow.id > after)
            .order_by(JobRow.id)
            .limit(checked_limit(limit))
        )
        with self._transactions.read() as session:
            return tuple(map(job_of, session.scalars(rows)))

    def counts(self) -> dict[tuple[JobKind, JobState], int]:
        """How many jobs are open, by kind and state; what is absent is 0."""
        rows = (
            select(JobRow.kind, JobRow.state, func.count())
            .where(JobRow.state.in_((JobState.QUEUED, JobState.LEASED)))
            .group_by(JobRow.kind, JobRow.state)
        )
        with self._transactions.read() as session:
            found = session.execute(rows)
            return {(JobKind(kind), JobState(state)): count for kind, state, count in found}

    # Claims

    def waiting_boards(self, among: Collection[str]) -> tuple[str, ...]:
        """Those of these boards, however many, that would get a job if they asked now: one read
        for all long polls."""
        if not among:
            return ()
        dialect = self._transactions.engine.dialect.name
        names = list(among) if dialect == "postgresql" else json.dumps(list(among))
        with self._transactions.look() as connection:
            found = connection.execute(
                waiting_boards(dialect), {"names": names, "now": self._now()}
            )
            return tuple(found.scalars())

    def claim_for_board(
        self, board_id: str, *, lease_s: float, owner: str = "", told: bool = False
    ) -> Claim | None:
        """Lease the board's first ``measure`` job for ``lease_s`` seconds, or else the first
        queued one of a run that the board stands in for.

        None if there is no job, the board is not active, or it holds a lease that has not run
        out. ``owner`` (the agent's version, say) is kept with the attempt. ``told``: somebody
        has said that there is a job, so that it is taken without a look before. ``AbsentError``
        if there is no such board.
        """
        checked_number("lease_s", lease_s, LEAST_LEASE_S, MOST_LEASE_S)
        return self._begun(self._claim_for_board(board_id, lease_s, shown_text(owner), told))

    def _begun(self, claim: Claim | None) -> Claim | None:
        if claim is not None:
            self._held_seconds.begun(claim.lease.job_id, claim.lease.attempt)
        return claim

    def _claim_for_board(
        self, board_id: str, lease_s: float, shown: str, told: bool
    ) -> Claim | None:
        if told and (claim := self._claim_at_once(board_id, shown, lease_s)) is not None:
            return claim
        # Nearly every look finds nothing, or a job that is plainly next: one read says which.
        with self._transactions.look() as connection:
            outlook = outlook_of(connection, board_id, self._now())
        if outlook.nothing:
            return None
        if outlook.own and not outlook.to_clear and not told:
            claim = self._claim_at_once(board_id, shown, lease_s)
            if claim is not None:
                return claim
        # A claim that a crash of the database forgets is one whose lease has run out: the job is
        # given out again, and the token fences the board that had it.
        with self._transactions.write(durable=False) as session:
            now = self._now()
            board = session.execute(LOCK_BOARD, {"board": board_id}).one_or_none()
            if board is None:
                return None
            if board.last_seen is None or now - board.last_seen >= SEEN_AGAIN:
                session.execute(SEEN_NOW, {"board": board_id, "seen": now})
            if board.state != BoardState.ACTIVE:
                return None
            if outlook.to_clear:
                clear_the_way(session, JobRow.board_id == board_id, now, _CLEARED)
            taking = (TAKE_FOR_BOARD, {"board": board_id}, shown, lease_s, now)
            claim = take(session, *taking)
            if claim is not None or not outlook.shared:
                return claim
            # Nothing of its own: it stands in for other boards of its runs.
            clear_the_way(session, shared_with(board_id), now, _CLEARED)
            return take(session, *taking) if take_over(session, board_id, now) else None

    def _claim_at_once(self, board_id: str, owner: str, lease_s: float) -> Claim | None:
        """A claim in one statement, where the database has such; None if it found nothing."""
        if not self._transactions.writes_at_once:
            return None
        with self._transactions.look() as connection:
            return claim_at_once(connection, board_id, owner, lease_s, self._now())

    def claim_work(
        self,
        kinds: Collection[JobKind],
        owner: str,
        *,
        lease_s: float,
        job_id: str | None = None,
        one_each: bool = False,
    ) -> Claim | None:
        """Lease the first job of these kinds (``propose``, ``solve``), or the one named.

        Whoever has none under way is first; with ``one_each`` nobody gets a second one. None if
        there is none, or the one named is not to be had (any more).
        """
        if not kinds or not _WORK.issuperset(kinds):
            allowed = ", ".join(sorted(_WORK))
            raise InputError(Problem("kinds", "not for solver workers", str(kinds)[:80], allowed))
        checked_number("lease_s", lease_s, LEAST_LEASE_S, MOST_LEASE_S)
        asked = {"kinds": sorted(kinds)}
        with self._transactions.look() as connection:
            looking = ANOTHERS_WORK_WAITS if one_each else WORK_WAITS
            waits = connection.execute(looking, {**asked, "now": self._now()}).first()
        if waits is None:
            return None
        which = JobRow.board_id.is_(None) & JobRow.kind.in_(asked["kinds"])
        if job_id is not None:
            which &= JobRow.id == job_id
        with self._transactions.write(durable=False) as session:
            lock_serving(session, alone=one_each)
            now = self._now()
            clear_the_way(session, which, now, _CLEARED)
            if job_id is None:
                taking = TAKE_ANOTHERS_WORK if one_each else TAKE_WORK
                claim = take(session, taking, asked, shown_text(owner), lease_s, now)
            else:
                named = {**asked, "named": job_id}
                claim = take(session, TAKE_NAMED_WORK, named, shown_text(owner), lease_s, now)
        return self._begun(claim)

    def unrung(self, older_than_s: float, limit: int = 100) -> tuple[tuple[str, JobKind], ...]:
        """Claimable ``propose`` and ``solve`` jobs whose bell was never rung, or rung longer
        ago; they are marked as rung now. Ring for each: a lost broker then loses nothing."""
        checked_number("older_than_s", older_than_s, 0.0, 1e9)
        now = self._now()
        before = now - timedelta(seconds=older_than_s)
        with self._transactions.look() as connection:
            asked = {"now": now, "before": before}
            if connection.execute(UNRUNG, asked).first() is None:
                return ()
        # Who rings again because a crash of the database forgot it does no harm.
        with self._transactions.write(durable=False) as session:
            which = (
                select(JobRow.id)
                .where(
                    JobRow.board_id.is_(None),
                    JobRow.state == JobState.QUEUED,
                    JobRow.held.is_(False),
                    JobRow.not_before <= now,
                    JobRow.rung_at.is_(None) | (JobRow.rung_at <= before),
                )
                .order_by(JobRow.rank, JobRow.id)
                .limit(checked_limit(limit))
                .with_for_update(skip_locked=True)
            )
            rung = (
                update(JobRow)
                .where(JobRow.id.in_(which))
                .values(rung_at=now)
                .returning(JobRow.id, JobRow.kind)
            )
            found = session.execute(rung, execution_options={"synchronize_session": False})
            return tuple((job_id, JobKind(kind)) for job_id, kind in found)

    # While a lease is held

    def heartbeat(
        self, lease: Lease, *, lease_s: float, stage: str = "", board_id: str | None = None
    ) -> Heartbeat:
        """Keep a lease for ``lease_s`` more seconds from now.

        A lease that ran out is taken back if nobody has claimed the job since. ``cancel`` in
        the answer: the run is ending, the board is disabled, or the attempt has taken all the time
        that it may (:mod:`db.farm.deadlines`). Such a lease is neither kept nor taken back: it
        ends when it would have, whatever its board says. Raises ``StaleLease`` and
        ``AbsentError``, also for a job that is not of ``board_id``, where that is given.
        """
        checked_number("lease_s", lease_s, LEAST_LEASE_S, MOST_LEASE_S)
        beat = Beat(lease, self._now(), lease_s, shown_text(stage, 200), board_id)
        return keep(self._transactions, beat)

    def fail(
        self,
        lease: Lease,
        reason: str,
        *,
        retry_after_s: float = 1.0,
        board_id: str | None = None,
    ) -> Job:
        """End an attempt without a result: the worker could not do it, and says why.

        The job is queued again after ``retry_after_s``, or is failed if this was its last
        attempt, or cancelled if its run is ending. A repeat changes nothing. Raises
        ``StaleLease`` and ``AbsentError``.
        """
        checked_number("retry_after_s", retry_after_s, 0.0, 86_400.0)
        with self._transactions.write() as session:
            now = self._now()
            held = held_job(session, lease, board_id)
            job, run = held.job, held.run
            if held.repeat:
                return job_of(job)
            held_s = self._held_seconds.ended(job, held.claimed_at, now)
            charge_lease(session, job, held_s, now, charged=held.charged, goes_on=True)
            end_attempt(session, job, AttemptEnd.FAILED, now, reason)
            ending = run is not None and is_ending(run.state)
            if ending:
                end_job(session, job, JobState.CANCELLED, now)
            elif job.attempt >= job.max_attempts:
                fail_job(session, job, run, now)
            else:
                job.state, job.lease_until, job.rung_at = JobState.QUEUED, None, None
                job.not_before = now + timedelta(seconds=retry_after_s)
                job.held = run is not None and run.state == RunState.PAUSED
                session.flush()
                if run is not None:
                    payload = {"job": job.id, "attempt": job.attempt, "reason": shown_text(reason)}
                    add_event(session, now, EventKind.JOB_RETRIED, payload, run_id=run.id)
            if ending and run is not None:
                settle(session, run, now)
            return job_of(job)

    def cancel(self, job_id: str) -> Job:
        """Cancel a job that belongs to no run; its lease becomes stale.

        ``ConflictError`` if it is one of a run, or has ended otherwise.
        """
        with self._transactions.write() as session:
            now = self._now()
            job = lock_job(session, job_id)
            if job.state == JobState.CANCELLED:
                return job_of(job)
            if job.run_id is not None or JobState(job.state).ended:
                found = job.state if job.run_id is None else "a job of a run"
                raise ConflictError(
                    Problem("job", "cannot be cancelled", found, "an open job without a run")
                )
            if job.state == JobState.LEASED:
                attempt = session.get_one(JobAttemptRow, (job.id, job.attempt))
                held_s = self._held_seconds.ended(job, attempt.claimed_at, now)
                charge_lease(session, job, held_s, now, charged=attempt.charged)
                end_attempt(session, job, AttemptEnd.CANCELLED, now, "the job was cancelled")
            job.lease_hash = None
            end_job(session, job, JobState.CANCELLED, now)
            return job_of(job)

    # The sweeper

    def expire(self, limit: int = 100) -> Swept:
        """Put jobs whose lease has run out back into the queue, write how long runs have run, and
        end those whose seconds are spent; at most ``limit`` of each. Call it every second from
        anywhere, any number of times at once."""
        checked_limit(limit)
        with self._transactions.write() as session:
            now = self._now()
            lapsed = session.execute(
                select(JobRow.id, JobRow.run_id)
                .where(JobRow.state == JobState.LEASED, JobRow.lease_until < now)
                .order_by(JobRow.lease_until)
                .limit(limit)
            ).all()
            looked_at = runs_to_look_at(session, now, limit)
            runs = lock_runs(session, [*(run_id for _, run_id in lapsed), *looked_at])
            expired = expire(session, [job_id for job_id, _ in lapsed], runs, now)
            ended: list[str] = []
            for run_id in looked_at:
                run = runs[run_id]
                if run.state != RunState.RUNNING:
                    continue
                note_activity(run, now)
                if spent_budget(run, now):
                    end_run(session, run, RunState.FINISHED, now, spent_budget(run, now))
                    ended.append(run_id)
            return Swept(tuple(expired), tuple(ended))


def _job(session: Session, job_id: str, now: datetime) -> Job:
    del now
    row = session.get(JobRow, job_id)
    if row is None:
        raise absent("job", job_id)
    return job_of(row)
