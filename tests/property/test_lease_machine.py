"""The queue against a pure model, step by step, on both databases.

Boards claim, beat, finish, give up and die; runs are paused, resumed and cancelled; time
passes. After every step the database and the model agree on every job, no board has two live
leases, and what has ended stays as it ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import select

from db.farm.deadlines import DEFAULT_TIMEOUT_S, FETCH_S
from db.farm.errors import ConflictError, StaleLease
from db.farm.farm import Farm
from db.farm.job_records import Claim, Lease, NewJob
from db.farm.records import Board
from db.farm.run_records import Run
from db.farm.states import JobKind, JobState, RunState
from db.farm.tables import JobRow
from tests.effort import cases
from tests.unit.db.farm_values import (
    FACTS,
    Clock,
    propose,
    some_board,
    some_proposal,
    some_run,
    timed,
)
from tests.unit.db.postgres_server import INSTALL, NEEDS, running_server

LEASE_S = 10.0
ATTEMPT_S = DEFAULT_TIMEOUT_S + FETCH_S
_NEVER = datetime.max.replace(tzinfo=UTC)
RETRY_S = 5.0
MOST_ATTEMPTS = 3
BOARDS = 2
_EXAMPLES = {"sqlite": cases(15, 30), "postgresql": cases(8, 20)}


@pytest.fixture(
    scope="module",
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.needs(NEEDS, install=INSTALL))],
)
def farm_and_clock(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Farm, Clock]]:
    """One database for all examples: each works with boards and runs of its own."""
    clock = Clock()
    with ExitStack() as stack:
        if request.param == "sqlite":
            address: str | Path = tmp_path_factory.mktemp("leases") / "farm.db"
        else:
            address = stack.enter_context(running_server())
        yield request.param, stack.enter_context(Farm.open(address, now=clock)), clock


@dataclass
class ModelJob:
    """A job as the rules of leases have it. ``holder`` is the newest claim's lease while its
    result would still be taken; ``ended_by_holder`` says that this claim ended by itself; ``over``
    is when a board's attempt has taken all the time that it may."""

    id: str
    run: int | None
    board: int | None
    owner: str = ""
    state: JobState = JobState.QUEUED
    attempt: int = 0
    until: float = 0.0
    over: datetime = _NEVER
    not_before: float = 0.0
    held: bool = False
    holder: Lease | None = None
    ended_by_holder: bool = False
    history: list[JobState] = field(default_factory=list[JobState])

    def end(self, state: JobState) -> None:
        assert not self.state.ended, "a job ended twice"
        self.state = state

    def take_away(self) -> None:
        self.holder = None


@dataclass
class ModelRun:
    """A run that works without a budget: it asks for more when nothing is left."""

    state: RunState = RunState.RUNNING
    proposing: bool = False
    measured: int = 0
    lost: int = 0


class LeaseMachine(RuleBasedStateMachine):
    """Two boards with a run each, and jobs for solver workers; perhaps the second board stands
    in for the first in its run."""

    def __init__(self, farm: Farm, clock: Clock) -> None:
        super().__init__()
        self.farm = farm
        self.clock = clock
        self.boards: list[Board] = []
        self.runs: list[Run] = []
        self.model_runs: list[ModelRun] = []
        self.jobs: dict[str, ModelJob] = {}
        self.leases: list[Lease] = []
        self.drawn = 0
        self.shared = False

    @property
    def now(self) -> float:
        return self.clock().timestamp()

    # Beginning and end

    @initialize(shared=st.booleans())
    def begin(self, shared: bool) -> None:
        self.shared = shared
        self.boards = [
            some_board(self.farm, f"{self.clock().isoformat()} {number}")
            for number in range(BOARDS)
        ]
        for number, board in enumerate(self.boards):
            stand_ins = (self.boards[1].id,) if shared and number == 0 else ()
            self.runs.append(some_run(self.farm, board, low_water=1, stand_ins=stand_ins))
            self.model_runs.append(ModelRun())
            propose(self.farm, self.numbers(3))
            self.note_new_jobs(number)
            self.clock.advance(0.001)

    def teardown(self) -> None:
        for run in self.runs:
            self.farm.runs.cancel(run.id)
        self.clock.advance(1_000)
        self.farm.jobs.expire()
        for job in self.jobs.values():
            if job.run is None and not self.farm.jobs.job(job.id).state.ended:
                self.farm.jobs.cancel(job.id)
        assert self.farm.jobs.counts() == {}

    def numbers(self, count: int) -> range:
        self.drawn += count
        return range(self.drawn - count, self.drawn)

    def note_new_jobs(self, run: int) -> None:
        for job in self.farm.jobs.of_run(self.runs[run].id):
            if job.kind is JobKind.MEASURE and job.id not in self.jobs:
                held = self.model_runs[run].state is RunState.PAUSED
                self.jobs[job.id] = ModelJob(
                    job.id, run, run, not_before=job.not_before.timestamp(), held=held
                )

    # The model's own steps

    def of(self, run: int | None) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.run == run]

    def settle(self, run: int | None) -> None:
        if run is None:
            return
        model = self.model_runs[run]
        open_jobs = [job for job in self.of(run) if not job.state.ended]
        if model.state is RunState.CANCELLING:
            if not any(job.state is JobState.LEASED for job in open_jobs):
                model.state = RunState.CANCELLED
        elif model.state is RunState.RUNNING and not open_jobs:
            model.proposing = True

    def lapse(self, job: ModelJob) -> None:
        if job.run is not None and self.model_runs[job.run].state is RunState.CANCELLING:
            job.end(JobState.CANCELLED)
            job.take_away()
            return
        job.state, job.not_before = JobState.QUEUED, self.now
        job.held = job.run is not None and self.model_runs[job.run].state is RunState.PAUSED

    def busy(self, board: int | None) -> bool:
        return board is not None and any(
            job.state is JobState.LEASED for job in self.jobs.values() if job.board == board
        )

    def claimable(self, jobs: list[ModelJob], board: int | None) -> list[ModelJob]:
        """What a claim may take, after it has cleared the way; oldest first."""
        for job in jobs:
            if job.state is JobState.LEASED and job.until < self.now:
                self.lapse(job)
                self.settle(job.run)
        waiting = [
            job
            for job in jobs
            if job.state is JobState.QUEUED and not job.held and job.not_before <= self.now
        ]
        for job in waiting:
            if job.attempt >= MOST_ATTEMPTS:
                job.end(JobState.FAILED)
                job.take_away()
                if job.run is not None:
                    self.model_runs[job.run].lost += 1
                    self.settle(job.run)
        if self.busy(board):
            return []
        left = [job for job in waiting if job.state is JobState.QUEUED]
        return sorted(left, key=lambda job: job.id)

    def first_in_turn(self, jobs: list[ModelJob]) -> ModelJob | None:
        """Of jobs for solver workers the next one: of who has none under way, by turn. What ends
        puts others back, as the tests of turns say; a claim moves none."""
        busy = {job.owner for job in self.of(None) if job.state is JobState.LEASED}
        ids = [job.id for job in jobs]
        with self.farm.jobs._transactions.read() as session:
            asked = select(JobRow.id, JobRow.rank).where(JobRow.id.in_(ids))
            ranks = {job_id: rank for job_id, rank in session.execute(asked)}
        return min(jobs, key=lambda job: (job.owner in busy, ranks[job.id], job.id), default=None)

    def note_claim(self, expected: ModelJob | None, claimed: Claim | None) -> None:
        assert (claimed and claimed.job.id) == (expected and expected.id)
        if claimed is None or expected is None:
            return
        expected.attempt += 1
        assert claimed.lease.attempt == expected.attempt <= MOST_ATTEMPTS
        expected.state, expected.until = JobState.LEASED, self.now + LEASE_S
        expected.holder, expected.ended_by_holder = claimed.lease, False
        if expected.run is not None:
            expected.over = self.clock() + timedelta(seconds=ATTEMPT_S)
        self.leases.append(claimed.lease)

    def newest(self, lease: Lease) -> ModelJob | None:
        """The job, if the lease is that of its newest claim and was not taken away."""
        job = self.jobs[lease.job_id]
        return job if job.holder == lease else None

    # What boards and workers do

    @rule(number=st.integers(0, BOARDS - 1))
    def claim_for_board(self, number: int) -> None:
        own = [job for job in self.jobs.values() if job.board == number]
        expected = next(iter(self.claimable(own, number)), None)
        if expected is None and self.shared:
            # The first board's run may be measured by both, and what one took stays its own.
            others = [job for job in self.of(0) if job.board != number]
            expected = next(iter(self.claimable(others, number)), None)
            if expected is not None:
                expected.board = number
        asked = [board.id for board in self.boards]
        waiting = self.boards[number].id in self.farm.jobs.waiting_boards(asked)
        assert waiting or expected is None
        claimed = self.farm.jobs.claim_for_board(self.boards[number].id, lease_s=LEASE_S)
        self.note_claim(expected, claimed)

    @rule(one_each=st.booleans())
    def claim_solve_work(self, one_each: bool) -> None:
        waiting = self.claimable(self.of(None), None)
        claimed = self.farm.jobs.claim_work(
            [JobKind.SOLVE], "solver", lease_s=LEASE_S, one_each=one_each
        )
        expected = self.first_in_turn(waiting)
        if one_each and expected is not None:
            held = [job for job in self.of(None) if job.state is JobState.LEASED]
            expected = None if expected.owner in {job.owner for job in held} else expected
        self.note_claim(expected, claimed)

    @rule(delay_s=st.sampled_from([0.0, 5.0]), owner=st.sampled_from(["me", "you"]))
    def enqueue(self, delay_s: float, owner: str) -> None:
        self.clock.advance(0.001)  # so that names sort as jobs were made
        not_before = self.clock() + timedelta(seconds=delay_s)
        job = self.farm.jobs.enqueue(NewJob({}, owner, not_before=not_before)).value
        self.jobs[job.id] = ModelJob(job.id, None, None, owner, not_before=not_before.timestamp())

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.leases[-6:]))
        job = self.newest(lease)
        busy = job is not None and self.busy(job.board)
        lapsed = job is not None and job.state is JobState.QUEUED and not job.ended_by_holder
        if job is not None and (job.state is JobState.LEASED or (lapsed and not busy)):
            beat = self.farm.jobs.heartbeat(lease, lease_s=LEASE_S)
            ending = job.run is not None and self.model_runs[job.run].state in (
                RunState.CANCELLING,
                RunState.CANCELLED,
            )
            over = self.clock() >= job.over
            assert beat.cancel == (ending or over)
            until = min(self.now + LEASE_S, job.over.timestamp())
            if not ending and not over:
                job.state, job.until = JobState.LEASED, until
            elif job.state is JobState.LEASED and not ending:
                job.until = until  # no longer than the attempt may last
            return
        with pytest.raises(StaleLease):
            self.farm.jobs.heartbeat(lease, lease_s=LEASE_S)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.leases[-6:]))
        measures = self.jobs[lease.job_id].run is not None

        def act() -> tuple[bool, bool]:
            if measures:
                done = self.farm.results.finish_measure(lease, timed(1_000), facts=FACTS)
            else:
                done = self.farm.results.finish_solve(lease, {})
            return done.stored, done.repeated

        job = self.newest(lease)
        if job is None:
            with pytest.raises(StaleLease):
                act()
        elif job.ended_by_holder:
            assert act() == (False, True)
        else:
            assert act() == (True, False)
            job.end(JobState.DONE)
            job.ended_by_holder = True
            if job.run is not None:
                self.model_runs[job.run].measured += 1
            self.settle(job.run)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.leases[-6:]))
        job = self.newest(lease)
        if job is None:
            with pytest.raises(StaleLease):
                self.farm.jobs.fail(lease, "no", retry_after_s=RETRY_S)
            return
        after = self.farm.jobs.fail(lease, "no", retry_after_s=RETRY_S)
        if job.ended_by_holder:
            assert after.state is job.state
            return
        job.ended_by_holder = True
        run = None if job.run is None else self.model_runs[job.run]
        if run is not None and run.state is RunState.CANCELLING:
            job.end(JobState.CANCELLED)
        elif job.attempt >= MOST_ATTEMPTS:
            job.end(JobState.FAILED)
            if run is not None:
                run.lost += 1
        else:
            job.state, job.not_before = JobState.QUEUED, self.now + RETRY_S
            job.held = run is not None and run.state is RunState.PAUSED
            return
        self.settle(job.run)

    # What the sweeper, time and people do

    @rule(seconds=st.sampled_from([0.5, 4.0, 6.0, 10.5, 60.0, ATTEMPT_S]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def sweep(self) -> None:
        lapsed = {
            job.id
            for job in self.jobs.values()
            if job.state is JobState.LEASED and job.until < self.now
        }
        for job_id in lapsed:
            self.lapse(self.jobs[job_id])
        for run in range(BOARDS):
            if any(self.jobs[job_id].run == run for job_id in lapsed):
                self.settle(run)
        assert set(self.farm.jobs.expire().expired) == lapsed

    @rule(number=st.integers(0, BOARDS - 1))
    def pause(self, number: int) -> None:
        model = self.model_runs[number]
        if model.state in (RunState.CANCELLING, RunState.CANCELLED):
            with pytest.raises(ConflictError):
                self.farm.runs.pause(self.runs[number].id)
            return
        self.farm.runs.pause(self.runs[number].id)
        model.state = RunState.PAUSED
        for job in self.of(number):
            job.held = job.held or job.state is JobState.QUEUED

    @rule(number=st.integers(0, BOARDS - 1))
    def resume(self, number: int) -> None:
        model = self.model_runs[number]
        if model.state in (RunState.CANCELLING, RunState.CANCELLED):
            with pytest.raises(ConflictError):
                self.farm.runs.resume(self.runs[number].id)
            return
        self.farm.runs.resume(self.runs[number].id)
        if model.state is RunState.RUNNING:
            return
        model.state = RunState.RUNNING
        for job in self.of(number):
            job.held = False
        self.settle(number)

    @rule(number=st.integers(0, BOARDS - 1), sure=st.integers(0, 3))
    def cancel(self, number: int, sure: int) -> None:
        if sure:  # seldom: a cancelled run is of little interest afterwards
            return
        model = self.model_runs[number]
        self.farm.runs.cancel(self.runs[number].id)
        if model.state in (RunState.CANCELLING, RunState.CANCELLED):
            return
        model.state, model.proposing = RunState.CANCELLING, False
        for job in self.of(number):
            if job.state is JobState.QUEUED:
                job.end(JobState.CANCELLED)
                job.take_away()
        self.settle(number)

    @rule(number=st.integers(0, BOARDS - 1))
    def propose_more(self, number: int) -> None:
        model = self.model_runs[number]
        wanted = [
            job
            for job in self.farm.jobs.of_run(self.runs[number].id)
            if job.kind is JobKind.PROPOSE and not job.state.ended
        ]
        assert len(wanted) == int(model.proposing)
        if not wanted:
            return
        claimed = self.farm.jobs.claim_work(
            [JobKind.PROPOSE], "solver", lease_s=LEASE_S, job_id=wanted[0].id
        )
        if model.state is RunState.PAUSED:
            assert claimed is None
            return
        assert claimed is not None
        self.farm.results.finish_propose(claimed.lease, some_proposal(self.numbers(2)))
        model.proposing = False
        self.note_new_jobs(number)

    # What always holds

    @invariant()
    def database_and_model_agree(self) -> None:
        for number, run in enumerate(self.runs):
            stored = self.farm.runs.run(run.id)
            model = self.model_runs[number]
            assert stored.state is model.state
            assert (stored.progress.measured, stored.progress.lost) == (model.measured, model.lost)
            found = {job.id: job for job in self.farm.jobs.of_run(run.id)}
            for job in self.of(number):
                assert (found[job.id].state, found[job.id].attempt) == (job.state, job.attempt)
            for job in self.of(number):
                board = None if job.board is None else self.boards[job.board].id
                assert found[job.id].board_id == board
        for number in range(BOARDS):
            leased = [job for job in self.jobs.values() if job.state is JobState.LEASED]
            assert len([job for job in leased if job.board == number]) <= 1
        for job in self.of(None):
            stored_job = self.farm.jobs.job(job.id)
            assert (stored_job.state, stored_job.attempt) == (job.state, job.attempt)

    @invariant()
    def what_has_ended_stays_so(self) -> None:
        for job in self.jobs.values():
            if not job.history or job.history[-1] is not job.state:
                assert not (job.history and job.history[-1].ended)
                job.history.append(job.state)


def test_leases_follow_the_model(farm_and_clock: tuple[str, Farm, Clock]):
    kind, farm, clock = farm_and_clock

    class OnThisDatabase(LeaseMachine):
        def __init__(self) -> None:
            super().__init__(farm, clock)

    run_state_machine_as_test(
        OnThisDatabase,
        settings=settings(
            max_examples=_EXAMPLES[kind],
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
