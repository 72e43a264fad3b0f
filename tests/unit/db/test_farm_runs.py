"""The life of a run: each step one transaction, and only the steps that there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from db.farm.errors import AbsentError, ConflictError, IdempotencyKeyReused, StaleLease
from db.farm.farm import Farm
from db.farm.job_records import NewJob
from db.farm.records import IdempotencyKey, Keyset, StoredResponse
from db.farm.run_records import NewRun, ProposedCandidate, Run
from db.farm.states import RUN_STEPS, EventKind, JobKind, JobState, RunState, require_step
from mapper.errors import InputError
from mapper.measurement import Crash, Timed, in_brief
from tests.unit.db.farm_values import (
    FACTS,
    SOURCE_HASH,
    UNBOUNDED,
    Clock,
    claim,
    finish,
    propose,
    some_board,
    some_candidate,
    some_proposal,
    some_run,
    timed,
)


def states(farm: Farm, run: Run) -> list[str]:
    found = farm.events.events_after(run.id).events
    return [e.payload["state"] for e in found if e.kind is EventKind.RUN_STATE]


def test_a_run_comes_with_its_job_and_event(farm: Farm, clock: Clock):
    board = some_board(farm)
    run = some_run(farm, board, budget_candidates=5, priority=7)
    assert farm.runs.run(run.id) == run
    assert (run.state, run.priority, run.created_at) == (RunState.QUEUED, 7, clock())
    (job,) = farm.jobs.of_run(run.id)
    assert (job.kind, job.state, job.priority) == (JobKind.PROPOSE, JobState.QUEUED, 7)
    (event,) = farm.events.events_after(run.id).events
    assert event.kind is EventKind.RUN_CREATED
    assert event.payload == {"label": "vgg16/0", "board": board.id, "job": job.id}


def test_a_run_measures_until_its_budget_of_candidates(farm: Farm, clock: Clock):
    board = some_board(farm)
    run = some_run(farm, board, budget_candidates=3, low_water=2)
    started = propose(farm, range(2)).run
    assert started is not None
    assert (started.state, started.started_at) == (RunState.RUNNING, clock())
    finish(farm, claim(farm, board), 3_000)  # one left: more are asked for
    clock.advance(0.001)
    propose(farm, range(2, 9))
    finish(farm, claim(farm, board), 1_000)
    last = farm.results.finish_measure(claim(farm, board).lease, Crash(-11, "boom"), facts=FACTS)
    ended = farm.runs.run(run.id)
    assert last.run == ended
    assert (ended.state, ended.reason) == (RunState.FINISHED, "candidates")
    progress = ended.progress
    assert (progress.proposed, progress.measured, progress.outcomes["crash"]) == (9, 3, 1)
    best = some_candidate(1)
    assert (progress.best_ms, progress.best_candidate_id) == (0.001, best.id)
    assert progress.best_memory_bytes == best.memory_bytes
    assert farm.jobs.claim_for_board(board.id, lease_s=30) is None
    left = {job.state for job in farm.jobs.of_run(run.id) if job.kind is JobKind.MEASURE}
    assert left == {JobState.DONE, JobState.CANCELLED}
    assert states(farm, run) == ["running", "finished"]


def test_more_is_proposed_only_below_low_water_and_once(farm: Farm):
    board = some_board(farm)
    some_run(farm, board, low_water=2)
    propose(farm, range(4))
    for _ in range(2):
        finish(farm, claim(farm, board))
        assert farm.jobs.claim_work([JobKind.PROPOSE], "s", lease_s=30) is None
    finish(farm, claim(farm, board))
    assert farm.jobs.claim_work([JobKind.PROPOSE], "s", lease_s=30)
    finish(farm, claim(farm, board))
    assert farm.jobs.claim_work([JobKind.PROPOSE], "s", lease_s=30) is None


def test_nothing_is_proposed_beyond_the_budget(farm: Farm):
    board = some_board(farm)
    some_run(farm, board, budget_candidates=3, low_water=8)
    propose(farm, range(3))
    finish(farm, claim(farm, board))
    assert farm.jobs.claim_work([JobKind.PROPOSE], "s", lease_s=30) is None


def test_a_run_ends_when_its_seconds_are_spent(farm: Farm, clock: Clock):
    board = some_board(farm)
    run = some_run(farm, board, budget_seconds=60.0)
    clock.advance(1_000)  # in the queue: does not count
    propose(farm, range(9))
    for _ in range(8):  # the sweeper comes every second
        clock.advance(5)
        assert farm.jobs.expire().ended_runs == ()
    farm.runs.pause(run.id)
    clock.advance(1_000)  # nor does a pause
    farm.runs.resume(run.id)
    claimed = claim(farm, board, lease_s=60)
    for step_s in (9, 10):
        clock.advance(step_s)
        assert farm.jobs.expire().ended_runs == ()
    assert farm.runs.run(run.id).progress.active_s == pytest.approx(59)
    clock.advance(1)
    assert farm.jobs.expire().ended_runs == (run.id,)
    ended = farm.runs.run(run.id)
    assert (ended.state, ended.reason, ended.ended_at) == (RunState.FINISHED, "seconds", clock())
    clock.advance(5)
    assert farm.runs.run(run.id).progress.active_s == pytest.approx(60)
    # the measurement under way is told, and kept all the same
    assert farm.jobs.heartbeat(claimed.lease, lease_s=30).cancel
    assert finish(farm, claimed).stored


def test_a_run_ends_when_the_space_is_exhausted(farm: Farm):
    board = some_board(farm)
    run = some_run(farm, board)
    propose(farm, range(2), exhausted=True)
    finish(farm, claim(farm, board))
    assert farm.jobs.claim_work([JobKind.PROPOSE], "s", lease_s=30) is None
    finish(farm, claim(farm, board))
    ended = farm.runs.run(run.id)
    assert (ended.state, ended.reason, ended.exhausted) == (RunState.FINISHED, "exhausted", True)


def test_an_empty_proposal_is_asked_again_only_after_a_measurement(farm: Farm):
    board = some_board(farm)
    run = some_run(farm, board, low_water=5)
    propose(farm, range(2))
    propose(farm, [])
    assert farm.jobs.claim_work([JobKind.PROPOSE], "s", lease_s=30) is None
    finish(farm, claim(farm, board))
    propose(farm, [0, 1])  # both known: nothing new either
    finish(farm, claim(farm, board))
    propose(farm, [])
    ended = farm.runs.run(run.id)
    assert (ended.state, ended.reason) == (RunState.FINISHED, "exhausted")


def test_a_candidate_is_queued_once_in_a_run_and_again_in_another(farm: Farm, clock: Clock):
    board = some_board(farm)
    first = some_run(farm, board, low_water=1)
    clock.advance(0.001)
    second = some_run(farm, board, low_water=1)
    propose(farm, [0, 0, 1])
    propose(farm, [0])
    for run, count in ((first, 2), (second, 1)):
        assert farm.runs.run(run.id).progress.proposed == count
    (study,), (other,) = farm.runs.studies(first.id), farm.runs.studies(second.id)
    assert study.study_id != other.study_id
    assert replace(study, study_id=other.study_id) == other
    for _ in range(3):
        finish(farm, claim(farm, board))
    assert len(farm.store.measurements(farm.store.study(study.study_id))) == 2
    assert len(farm.store.measurements(farm.store.study(other.study_id))) == 1


def test_a_candidate_can_be_built_again_from_its_row(farm: Farm):
    some_run(farm, some_board(farm))
    propose(farm, [7])
    record = some_candidate(7)
    assert farm.store.candidate(record.id) == record
    assert farm.store.program(record.program_hash).json_text == '{"kernels":[]}'
    assert farm.artifacts.read(record.source_hash) == b"kernel void conv() {}"


def test_a_proposal_that_cannot_be_stored_leaves_nothing(farm: Farm):
    run = some_run(farm, some_board(farm))
    claimed = farm.jobs.claim_work([JobKind.PROPOSE], "s", lease_s=30)
    assert claimed is not None
    foreign = ProposedCandidate(0, some_candidate(0, program_hash="f" * 64), {})
    absent = ProposedCandidate(0, some_candidate(0), {}, ("a" * 64,))
    for wrong, message in (
        (some_proposal([0], artifacts=()), "artifacts that are not stored"),
        (some_proposal([0], candidates=(absent,)), "artifacts that are not stored"),
        (some_proposal([0], candidates=(foreign,)), "another program"),
        (some_proposal([0], studies=()), "no integer within bounds"),
    ):
        with pytest.raises(InputError, match=message):
            farm.results.finish_propose(claimed.lease, wrong)
    assert farm.runs.run(run.id).progress.proposed == 0
    assert farm.store.studies() == ()
    assert farm.artifacts.find(SOURCE_HASH) is None
    assert farm.results.finish_propose(claimed.lease, some_proposal([0])).stored


def test_another_driver_is_another_study(farm: Farm):
    board = some_board(farm)
    run = some_run(farm, board)
    propose(farm, range(2))
    finish(farm, claim(farm, board), facts={**FACTS, "temperature": 60})
    finish(farm, claim(farm, board), facts={"driver.version": "6.0"})
    first, second = farm.runs.studies(run.id)
    assert (first.device.facts, second.device.facts) == (
        FACTS,
        {**FACTS, "driver.version": "6.0"},
    )
    for study in (first, second):
        assert len(farm.store.measurements(farm.store.study(study.study_id))) == 1
    assert farm.runs.run(run.id).progress.measured == 2


@pytest.mark.parametrize(("offset_s", "kept_s"), [(-86_400.0, 0.0), (4.0, 4.0), (86_400.0, 10.0)])
def test_a_boards_clock_is_believed_within_the_lease(
    farm: Farm, clock: Clock, offset_s: float, kept_s: float
):
    board = some_board(farm)
    some_run(farm, board)
    propose(farm, [0])
    claimed, claimed_at = claim(farm, board), clock()
    clock.advance(10)
    farm.results.finish_measure(
        claimed.lease,
        Timed((1,), 0.0, 1.0),
        facts=FACTS,
        started_at=claimed_at + timedelta(seconds=offset_s),
    )
    (measurement,) = farm.store.measurements(farm.store.studies()[0])
    assert (measurement.started_at - claimed_at).total_seconds() == kept_s


# Pause, resume, cancel


def test_a_paused_run_gives_out_nothing(farm: Farm):
    board = some_board(farm)
    run = some_run(farm, board, low_water=3)
    propose(farm, range(4))
    under_way = claim(farm, board)
    assert farm.runs.pause(run.id).state is RunState.PAUSED
    assert farm.runs.pause(run.id).state is RunState.PAUSED
    assert finish(farm, under_way).stored
    assert farm.jobs.waiting_boards([board.id]) == ()
    assert farm.jobs.claim_for_board(board.id, lease_s=30) is None
    assert farm.runs.resume(run.id).state is RunState.RUNNING
    assert farm.runs.resume(run.id).state is RunState.RUNNING
    finish(farm, claim(farm, board))
    assert farm.jobs.unrung(30)


def test_what_is_proposed_while_paused_waits(farm: Farm):
    board = some_board(farm)
    run = some_run(farm, board)
    claimed = farm.jobs.claim_work([JobKind.PROPOSE], "s", lease_s=30)
    assert claimed is not None
    farm.runs.pause(run.id)
    farm.results.finish_propose(claimed.lease, some_proposal(range(3)))
    assert farm.runs.run(run.id).state is RunState.PAUSED
    assert farm.jobs.claim_for_board(board.id, lease_s=30) is None
    assert farm.runs.resume(run.id).state is RunState.RUNNING
    claim(farm, board)


def test_a_job_that_lapses_while_paused_waits(farm: Farm, clock: Clock):
    board = some_board(farm)
    run = some_run(farm, board)
    propose(farm, [0])
    claim(farm, board, lease_s=10)
    farm.runs.pause(run.id)
    clock.advance(11)
    farm.jobs.expire()
    assert farm.jobs.claim_for_board(board.id, lease_s=30) is None
    farm.runs.resume(run.id)
    assert claim(farm, board).lease.attempt == 2


def test_a_run_paused_before_it_began_goes_back_to_the_queue(farm: Farm):
    run = some_run(farm, some_board(farm))
    farm.runs.pause(run.id)
    assert farm.jobs.claim_work([JobKind.PROPOSE], "s", lease_s=30) is None
    assert farm.jobs.unrung(0) == ()
    assert farm.runs.resume(run.id).state is RunState.QUEUED
    assert farm.jobs.claim_work([JobKind.PROPOSE], "s", lease_s=30)


def test_a_cancelled_run_waits_for_the_measurement_under_way(farm: Farm):
    board = some_board(farm)
    run = some_run(farm, board, low_water=9)
    propose(farm, range(3))
    proposing = farm.jobs.claim_work([JobKind.PROPOSE], "s", lease_s=30)
    under_way = claim(farm, board)
    assert proposing is not None
    assert farm.runs.cancel(run.id).state is RunState.CANCELLING
    assert farm.jobs.heartbeat(under_way.lease, lease_s=30).cancel
    with pytest.raises(StaleLease):
        farm.results.finish_propose(proposing.lease, some_proposal([9]))
    done = finish(farm, under_way)
    assert done.stored
    assert done.run is not None
    assert (done.run.state, done.run.reason) == (RunState.CANCELLED, "cancelled")
    assert farm.runs.cancel(run.id).state is RunState.CANCELLED
    assert {job.state for job in farm.jobs.of_run(run.id)} == {JobState.DONE, JobState.CANCELLED}
    assert states(farm, run) == ["running", "cancelling", "cancelled"]


def test_a_cancelled_run_with_a_dead_board_ends_with_the_lease(farm: Farm, clock: Clock):
    board = some_board(farm)
    run = some_run(farm, board)
    propose(farm, range(2))
    dead = claim(farm, board, lease_s=10)
    farm.runs.cancel(run.id)
    clock.advance(11)
    farm.jobs.expire()
    assert farm.runs.run(run.id).state is RunState.CANCELLED
    with pytest.raises(StaleLease):
        finish(farm, dead)


def test_a_board_that_gives_up_ends_a_cancelled_run(farm: Farm):
    board = some_board(farm)
    run = some_run(farm, board)
    propose(farm, range(2))
    under_way = claim(farm, board)
    farm.runs.cancel(run.id)
    assert farm.jobs.fail(under_way.lease, "told to stop").state is JobState.CANCELLED
    assert farm.runs.run(run.id).state is RunState.CANCELLED


def test_a_queued_run_is_cancelled_at_once(farm: Farm):
    run = some_run(farm, some_board(farm))
    assert farm.runs.cancel(run.id).state is RunState.CANCELLED
    assert farm.jobs.counts() == {}


def test_an_ended_run_stays_as_it_ended(farm: Farm):
    board = some_board(farm)
    run = some_run(farm, board)
    assert farm.runs.fail(run.id, "the program has no kernel").reason == "the program has no kernel"
    for step in (farm.runs.pause, farm.runs.resume, farm.runs.cancel):
        with pytest.raises(InputError, match=r"failed"):
            step(run.id)
    assert farm.runs.run(run.id).state is RunState.FAILED


@pytest.mark.parametrize("before", RunState)
@pytest.mark.parametrize("after", RunState)
def test_only_listed_steps_are_taken(before: RunState, after: RunState):
    if after in RUN_STEPS[before]:
        require_step(before, after)
        assert not before.ended
        return
    with pytest.raises(ConflictError, match=f"a {before} run cannot become {after}"):
        require_step(before, after)


@pytest.mark.parametrize("step", ["run", "pause", "resume", "cancel", "studies", "history"])
def test_an_unknown_run(farm: Farm, step: str):
    act: Callable[[str], object] = getattr(farm.runs, step)
    with pytest.raises(AbsentError, match="no such run"):
        act("run_none")
    with pytest.raises(AbsentError, match="no such run"):
        farm.events.events_after("run_none")


def test_a_run_needs_a_board_in_service(farm: Farm):
    board = some_board(farm)
    with pytest.raises(AbsentError, match="no such board"):
        farm.runs.create(NewRun("dev_none", "x", "me", {}, **UNBOUNDED))
    farm.boards.disable(board.id, "burnt", by="admin")
    with pytest.raises(ConflictError, match="is disabled"):
        some_run(farm, board)


def test_history_is_what_a_strategy_needs(farm: Farm, clock: Clock):
    board = some_board(farm)
    run = some_run(farm, board)
    propose(farm, range(3), strategy_state={"drawn": 1})
    finish(farm, claim(farm, board), 5_000)
    lost = claim(farm, board)
    for _ in range(3):
        farm.jobs.fail(lost.lease, "no")
        clock.advance(2)
        lost = claim(farm, board) if lost.lease.attempt < 3 else lost
    history = farm.runs.history(run.id)
    (study,) = history.studies
    assert (study.variant, study.mode, study.seed) == ("direct", "strict", 1)
    assert study.device.facts == FACTS
    assert history.strategy_state == {"drawn": 1}
    measured = {(study.study_id, some_candidate(0).id): in_brief(timed(5_000))}
    assert history.measured == measured
    assert history.lost_candidates == {(study.study_id, some_candidate(1).id)}
    assert history.open_candidates == {(study.study_id, some_candidate(2).id)}
    assert history.run == farm.runs.run(run.id)


def test_a_long_history_is_read_piece_by_piece(farm: Farm, monkeypatch: pytest.MonkeyPatch):
    board = some_board(farm)
    run = some_run(farm, board, low_water=1)
    propose(farm, range(5))
    for time_ns in (5_000, 4_000, 3_000, 2_000, 1_000):
        finish(farm, claim(farm, board), time_ns)
    whole = farm.runs.history(run.id).measured
    for at_once in (1, 2, 5):
        monkeypatch.setattr("db.farm.runs._AT_ONCE", at_once)
        assert list(farm.runs.history(run.id).measured.items()) == list(whole.items())
    assert [outcome.time_ms for outcome in whole.values() if isinstance(outcome, Timed)] == [
        0.005, 0.004, 0.003, 0.002, 0.001,
    ]  # fmt: skip


def test_pages_of_runs_neither_skip_nor_repeat(farm: Farm, clock: Clock):
    board, other = some_board(farm), some_board(farm, "other")
    runs: list[Run] = []
    for number in range(7):
        runs.append(some_run(farm, other if number == 3 else board, label=f"l{number % 2}"))
        if number % 3:
            clock.advance(0.001)  # some share their time of creation
    found: list[Run] = []
    after: Keyset | None = None
    while page := farm.runs.page(limit=2, after=after):
        found += page
        after = Keyset(page[-1].created_at, page[-1].id)
        some_run(farm, board)  # a new one must not shift the pages
    assert {run.id for run in found} == {run.id for run in runs}
    assert len(found) == 7
    assert [run.created_at for run in found] == sorted(
        (run.created_at for run in runs), reverse=True
    )
    assert [r.id for r in farm.runs.page(board_id=other.id)] == [runs[3].id]
    assert {r.label for r in farm.runs.page(label="l1")} == {"l1"}
    farm.runs.cancel(runs[0].id)
    assert [r.id for r in farm.runs.page(state=RunState.CANCELLED)] == [runs[0].id]


# Idempotency


def key_of(body: str = "0", key: str = "k1", principal: str = "me") -> IdempotencyKey:
    return IdempotencyKey(principal, key, body * 64)


def test_a_repeated_request_gets_the_first_answer(farm: Farm):
    board = some_board(farm)
    new = NewRun(board.id, "vgg16/0", "me", {}, **UNBOUNDED)
    first = farm.runs.create(new, key_of(), lambda run: StoredResponse(202, {"run": run.id}))
    farm.runs.pause(first.value.id)
    again = farm.runs.create(new, key_of(), lambda run: StoredResponse(500, {}))
    assert (first.repeated, again.repeated) == (False, True)
    assert first.response == again.response == StoredResponse(202, {"run": first.value.id})
    assert again.value.state is RunState.PAUSED
    assert len(farm.runs.page()) == 1


def test_a_key_with_another_body_is_refused(farm: Farm):
    board = some_board(farm)
    new = NewRun(board.id, "vgg16/0", "me", {}, **UNBOUNDED)
    farm.runs.create(new, key_of())
    with pytest.raises(IdempotencyKeyReused, match="another request"):
        farm.runs.create(new, key_of("1"))
    with pytest.raises(IdempotencyKeyReused):
        farm.jobs.enqueue(NewJob({}, "me"), key_of("1"))
    farm.runs.create(new, key_of("1", principal="you"))
    farm.runs.create(new, key_of("1", key="k2"))
    assert len(farm.runs.page()) == 3


def test_a_refused_request_does_not_use_its_key_up(farm: Farm):
    board = some_board(farm)
    with pytest.raises(AbsentError):
        farm.runs.create(NewRun("dev_none", "x", "me", {}, **UNBOUNDED), key_of())
    assert not farm.runs.create(NewRun(board.id, "x", "me", {}, **UNBOUNDED), key_of()).repeated


def test_answers_to_other_requests_are_kept_too(farm: Farm):
    assert farm.idempotency.find(key_of()) is None
    first = farm.idempotency.remember(key_of(), StoredResponse(201, {"a": [1, None]}))
    assert farm.idempotency.remember(key_of(), StoredResponse(500, None)) == first
    assert farm.idempotency.find(key_of()) == first
    with pytest.raises(IdempotencyKeyReused):
        farm.idempotency.find(key_of("1"))
    job = farm.jobs.enqueue(NewJob({"x": 1}, "me"), key_of(key="k3"))
    again = farm.jobs.enqueue(NewJob({"x": 1}, "me"), key_of(key="k3"))
    assert (again.repeated, again.value) == (True, job.value)
