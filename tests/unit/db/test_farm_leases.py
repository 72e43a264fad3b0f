"""Leases: one a board, ended once, stale writers refused, nothing lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from db.farm.errors import AbsentError, ConflictError, StaleLease
from db.farm.farm import Farm
from db.farm.job_records import Lease, NewJob
from db.farm.states import AttemptEnd, EventKind, JobKind, JobState, RunState
from mapper.errors import InputError
from mapper.measurement import Crash
from tests.unit.db.farm_values import (
    FACTS,
    SOURCE_HASH,
    Clock,
    claim,
    finish,
    propose,
    some_board,
    some_proposal,
    some_run,
    timed,
    with_work_like,
)


def test_a_board_has_one_lease_at_a_time(farm: Farm, clock: Clock):
    board, other = some_board(farm), some_board(farm, "other")
    some_run(farm, board)
    propose(farm, range(3))
    first = claim(farm, board)
    assert farm.jobs.claim_for_board(board.id, lease_s=30) is None
    assert farm.jobs.claim_for_board(other.id, lease_s=30) is None
    assert farm.jobs.waiting_boards([board.id, other.id]) == ()
    clock.advance(29)
    assert farm.jobs.claim_for_board(board.id, lease_s=30) is None
    finish(farm, first)
    assert farm.jobs.waiting_boards([board.id, other.id]) == (board.id,)
    assert claim(farm, board).job.id != first.job.id


def test_jobs_come_by_priority_then_in_the_order_of_the_proposal(farm: Farm):
    board = some_board(farm)
    some_run(farm, board)
    propose(farm, [5, 3, 4])
    urgent = some_run(farm, board, priority=1)
    propose(farm, [9])
    found = []
    for _ in range(4):
        claimed = claim(farm, board)
        found.append((claimed.job.run_id == urgent.id, claimed.job.payload["candidate"]))
        finish(farm, claimed)
    assert found == [(True, 9), (False, 5), (False, 3), (False, 4)]


def test_heartbeats_keep_a_lease(farm: Farm, clock: Clock):
    board = some_board(farm)
    some_run(farm, board)
    propose(farm, [0])
    claimed = claim(farm, board, lease_s=10)
    for _ in range(5):
        clock.advance(9)
        beat = farm.jobs.heartbeat(claimed.lease, lease_s=10, stage="compiling")
        assert not beat.cancel
        assert (beat.lease_until - clock()).total_seconds() == 10
        job = farm.jobs.job(claimed.job.id)
        assert (job.stage, job.lease_until) == ("compiling", beat.lease_until)
        assert farm.jobs.expire().expired == ()


def test_a_lapsed_job_goes_to_the_next_claim(farm: Farm, clock: Clock):
    board = some_board(farm)
    some_run(farm, board)
    propose(farm, [0])
    first = claim(farm, board, lease_s=10)
    clock.advance(10.5)
    # no sweeper has run: the claim itself finds the lapsed lease
    second = claim(farm, board, lease_s=10)
    assert second.job.id == first.job.id
    assert (first.lease.attempt, second.lease.attempt) == (1, 2)
    for stale in (
        lambda: finish(farm, first),
        lambda: farm.jobs.heartbeat(first.lease, lease_s=10),
        lambda: farm.jobs.fail(first.lease, "too late"),
    ):
        with pytest.raises(StaleLease, match="somebody else has claimed"):
            stale()
    assert finish(farm, second).stored
    endings = [attempt.ending for attempt in farm.jobs.attempts(first.job.id)]
    assert endings == [AttemptEnd.EXPIRED, AttemptEnd.DONE]


def test_a_result_counts_after_its_lease_until_another_claims(farm: Farm, clock: Clock):
    board = some_board(farm)
    run = some_run(farm, board)
    propose(farm, [0, 1])
    claimed = claim(farm, board, lease_s=10)
    clock.advance(11)
    assert farm.jobs.expire().expired == (claimed.job.id,)
    assert farm.jobs.job(claimed.job.id).state is JobState.QUEUED
    done = finish(farm, claimed)
    assert done.stored
    assert done.job.state is JobState.DONE
    assert farm.runs.run(run.id).progress.measured == 1
    assert [a.ending for a in farm.jobs.attempts(claimed.job.id)] == [AttemptEnd.DONE]


def test_a_heartbeat_takes_a_lapsed_lease_back(farm: Farm, clock: Clock):
    board = some_board(farm)
    some_run(farm, board)
    propose(farm, [0, 1])
    claimed = claim(farm, board, lease_s=10)
    clock.advance(11)
    farm.jobs.expire()
    farm.jobs.heartbeat(claimed.lease, lease_s=10)
    assert farm.jobs.job(claimed.job.id).state is JobState.LEASED
    assert farm.jobs.claim_for_board(board.id, lease_s=10) is None
    (attempt,) = farm.jobs.attempts(claimed.job.id)
    assert (attempt.ending, attempt.ended_at) == (None, None)


def test_a_lapsed_lease_is_not_taken_back_beside_another(farm: Farm, clock: Clock):
    board = some_board(farm)
    some_run(farm, board)
    propose(farm, [0])
    lapsed = claim(farm, board, lease_s=10)
    some_run(farm, board, priority=5)
    propose(farm, [1])
    clock.advance(11)
    other = claim(farm, board, lease_s=10)
    assert other.job.id != lapsed.job.id
    with pytest.raises(StaleLease, match="holds another lease"):
        farm.jobs.heartbeat(lapsed.lease, lease_s=10)
    assert finish(farm, lapsed).stored  # the measurement itself was made all the same


def test_a_repeat_of_a_result_changes_nothing(farm: Farm):
    board = some_board(farm)
    run = some_run(farm, board)
    propose(farm, range(6))
    claimed = claim(farm, board)
    first = finish(farm, claimed, 1_000)
    again = farm.results.finish_measure(claimed.lease, Crash(-11, "boom"), facts=FACTS)
    assert (first.stored, first.repeated) == (True, False)
    assert (again.stored, again.repeated) == (False, True)
    progress = farm.runs.run(run.id).progress
    assert (progress.measured, progress.outcomes["timed"], progress.best_ms) == (1, 1, 0.001)
    kinds = [event.kind for event in farm.events.events_after(run.id).events]
    assert kinds.count(EventKind.MEASURED) == 1


def test_another_token_or_attempt_is_stale(farm: Farm):
    board = some_board(farm)
    some_run(farm, board)
    propose(farm, [0])
    lease = claim(farm, board).lease
    wrong = (
        replace(lease, token="guess"),
        replace(lease, token="\udc80"),
        replace(lease, attempt=2),
        replace(lease, attempt=0),
    )
    for other in wrong:
        with pytest.raises(StaleLease):
            farm.results.finish_measure(other, timed(1), facts=FACTS)
    with pytest.raises(AbsentError, match="no such job"):
        farm.jobs.heartbeat(Lease("job_none", 1, lease.token), lease_s=10)
    assert lease.token not in repr(lease)


def test_the_fourth_claim_of_a_poison_job_fails_it_and_others_go_on(farm: Farm, clock: Clock):
    board = some_board(farm)
    run = some_run(farm, board, low_water=1)
    propose(farm, [0, 1])
    poison = claim(farm, board, lease_s=10)
    for _ in range(2):
        clock.advance(11)
        assert claim(farm, board, lease_s=10).job.id == poison.job.id
    clock.advance(11)
    farm.jobs.expire()
    assert farm.jobs.job(poison.job.id).state is JobState.QUEUED  # a late result would count
    healthy = claim(farm, board, lease_s=10)
    assert healthy.job.id != poison.job.id
    failed = farm.jobs.job(poison.job.id)
    assert (failed.state, failed.attempt) == (JobState.FAILED, 3)
    attempts = farm.jobs.attempts(poison.job.id)
    assert [a.ending for a in attempts] == [AttemptEnd.EXPIRED] * 3
    assert farm.runs.run(run.id).progress.lost == 1
    (event,) = [
        e for e in farm.events.events_after(run.id).events if e.kind is EventKind.JOB_FAILED
    ]
    assert len(event.payload["reasons"]) == 3
    assert finish(farm, healthy).stored


def test_a_worker_that_gives_up_says_why_and_the_job_waits(farm: Farm, clock: Clock):
    board = some_board(farm)
    run = some_run(farm, board, low_water=1)
    propose(farm, [0])
    (job_id,) = (job.id for job in farm.jobs.of_run(run.id) if job.kind is JobKind.MEASURE)
    for attempt in range(1, 4):
        claimed = claim(farm, board)
        assert claimed.job.id == job_id
        assert claimed.lease.attempt == attempt
        job = farm.jobs.fail(claimed.lease, f"no artifact {attempt} \x00\udc80", retry_after_s=5)
        assert farm.jobs.fail(claimed.lease, "again").state == job.state
        assert farm.jobs.claim_for_board(board.id, lease_s=30) is None
        clock.advance(5)
    assert farm.jobs.job(job_id).state is JobState.FAILED
    reasons = [attempt.reason for attempt in farm.jobs.attempts(job_id)]
    assert reasons[1] == "no artifact 2 \\x00\\udc80"
    assert farm.runs.run(run.id).progress.lost == 1


def test_a_propose_job_that_fails_for_good_fails_its_run(farm: Farm):
    board = some_board(farm)
    run = some_run(farm, board)
    for _ in range(3):
        claimed = farm.jobs.claim_work([JobKind.PROPOSE], "solver", lease_s=30)
        assert claimed is not None
        farm.jobs.fail(claimed.lease, "no mapping", retry_after_s=0)
    ended = farm.runs.run(run.id)
    assert (ended.state, ended.reason) == (
        RunState.FAILED,
        "no candidates: attempt 3: failed: no mapping",
    )


def test_no_work_for_a_board_that_is_not_active(farm: Farm):
    board = some_board(farm)
    some_run(farm, board)
    propose(farm, [0])
    farm.boards.quarantine(board.id, "golden kernel is wrong", by="agent")
    assert farm.jobs.waiting_boards([board.id]) == ()
    assert farm.jobs.claim_for_board(board.id, lease_s=30) is None
    farm.boards.release(board.id, by="agent")
    claim(farm, board)


def test_a_bell_is_rung_again_only_after_a_while(farm: Farm, clock: Clock):
    some_run(farm, some_board(farm))
    ((job_id, kind),) = farm.jobs.unrung(30)
    assert kind is JobKind.PROPOSE
    assert farm.jobs.unrung(30) == ()
    clock.advance(31)
    assert [found for found, _ in farm.jobs.unrung(30)] == [job_id]
    claimed = farm.jobs.claim_work([JobKind.PROPOSE], "solver", lease_s=10, job_id=job_id)
    assert claimed is not None
    clock.advance(31)
    assert farm.jobs.unrung(30) == ()  # it is leased
    farm.jobs.expire()
    assert [found for found, _ in farm.jobs.unrung(30)] == [job_id]
    # of two bells for one job the second finds nothing
    assert farm.jobs.claim_work([JobKind.PROPOSE], "a", lease_s=10, job_id=job_id)
    assert farm.jobs.claim_work([JobKind.PROPOSE], "b", lease_s=10, job_id=job_id) is None


def test_a_solve_job_keeps_its_result(farm: Farm):
    job = farm.jobs.enqueue(NewJob({"count": "vgg16/0"}, "me", priority=3)).value
    assert (job.kind, job.state, job.priority) == (JobKind.SOLVE, JobState.QUEUED, 3)
    claimed = farm.jobs.claim_work([JobKind.SOLVE], "solver", lease_s=30)
    assert claimed is not None
    done = farm.results.finish_solve(claimed.lease, {"count": 2**70})
    assert (done.stored, done.run) == (True, None)
    assert farm.jobs.job(job.id).result == {"count": 2**70}
    assert farm.results.finish_solve(claimed.lease, {"count": 0}).repeated
    assert farm.jobs.job(job.id).result == {"count": 2**70}
    with pytest.raises(ConflictError, match="cannot be cancelled"):
        farm.jobs.cancel(job.id)


def test_a_cancelled_solve_job_refuses_its_worker(farm: Farm):
    job = farm.jobs.enqueue(NewJob({}, "me")).value
    claimed = farm.jobs.claim_work([JobKind.SOLVE], "solver", lease_s=30)
    assert claimed is not None
    assert farm.jobs.cancel(job.id).state is JobState.CANCELLED
    assert farm.jobs.cancel(job.id).state is JobState.CANCELLED
    with pytest.raises(StaleLease):
        farm.results.finish_solve(claimed.lease, {})


def test_a_result_of_the_wrong_kind_is_refused(farm: Farm):
    some_run(farm, some_board(farm))
    claimed = farm.jobs.claim_work([JobKind.PROPOSE], "solver", lease_s=30)
    assert claimed is not None
    with pytest.raises(ConflictError, match="another kind"):
        farm.results.finish_solve(claimed.lease, {})
    with pytest.raises(InputError, match="not for solver workers"):
        farm.jobs.claim_work([JobKind.MEASURE], "solver", lease_s=30)
    assert farm.results.finish_propose(claimed.lease, some_proposal([0])).stored


def test_counts_of_open_jobs(farm: Farm):
    board = some_board(farm)
    some_run(farm, board, low_water=1)
    propose(farm, range(3))
    claim(farm, board)
    farm.jobs.enqueue(NewJob({}, "me"))
    assert farm.jobs.counts() == {
        (JobKind.MEASURE, JobState.QUEUED): 2,
        (JobKind.MEASURE, JobState.LEASED): 1,
        (JobKind.SOLVE, JobState.QUEUED): 1,
    }


def test_a_run_goes_on_with_a_stand_in_when_its_board_is_lost(farm: Farm, clock: Clock):
    board, other = some_board(farm), some_board(farm, "other")
    run = some_run(farm, board, stand_ins=(other.id,))
    propose(farm, range(4))
    both = {board.id, other.id}
    assert set(farm.jobs.waiting_boards(sorted(both))) == both
    assert farm.jobs.waiting_boards([other.id, "dev_none"]) == (other.id,)
    assert farm.artifacts.of_board(SOURCE_HASH, other.id) is not None
    assert farm.artifacts.of_board(SOURCE_HASH, some_board(farm, "third").id) is None
    lost, second = claim(farm, board), claim(farm, other)
    assert lost.job.id != second.job.id
    finish(farm, second)
    clock.advance(31)  # the first board has died with its lease
    farm.jobs.expire()
    measured = {second.job.id}
    for _ in range(3):
        claimed = claim(farm, other)
        assert claimed.job.board_id == other.id
        finish(farm, claimed)
        measured.add(claimed.job.id)
    assert lost.job.id in measured
    with pytest.raises(StaleLease):
        finish(farm, lost)
    assert farm.runs.run(run.id).progress.measured == 4
    assert [found.id for found in farm.runs.page(board_id=other.id)] == [run.id]


def test_a_boards_own_work_comes_before_that_of_others(farm: Farm):
    board, other = some_board(farm), some_board(farm, "other")
    some_run(farm, board, stand_ins=(other.id,), priority=9, low_water=1)
    propose(farm, range(2))
    own = some_run(farm, other)
    propose(farm, [7])
    first = claim(farm, other)
    assert first.job.run_id == own.id
    finish(farm, first)
    assert claim(farm, other).job.run_id != own.id


def test_a_poison_job_of_a_lost_board_is_failed_by_its_stand_in(farm: Farm, clock: Clock):
    board, other = some_board(farm), some_board(farm, "other")
    run = some_run(farm, board, stand_ins=(other.id,))
    propose(farm, [0])
    for _ in range(3):
        claim(farm, board)
        clock.advance(31)
        farm.jobs.expire()
    assert farm.jobs.claim_for_board(other.id, lease_s=30) is None
    assert farm.runs.run(run.id).progress.lost == 1


def test_stand_ins_have_the_profile_of_the_board(farm: Farm):
    board = some_board(farm)
    unlike = farm.boards.add("unlike", profile="h200", agent_version="0.1.0", facts=FACTS).board
    with pytest.raises(InputError, match="another profile"):
        some_run(farm, board, stand_ins=(unlike.id,))
    with pytest.raises(AbsentError):
        some_run(farm, board, stand_ins=("dev_nobody",))
    assert farm.runs.page() == ()


def test_boards_that_wait_are_found_however_many_others_have_work(farm: Farm):
    board = some_board(farm)
    some_run(farm, board)
    propose(farm, [0])
    absent = with_work_like(farm, board, 1_500)
    assert farm.jobs.waiting_boards([board.id]) == (board.id,)
    asked = [board.id, *absent[:1_200], "dev_none"]
    assert set(farm.jobs.waiting_boards(asked)) == {board.id, *absent[:1_200]}
    assert farm.jobs.waiting_boards([]) == ()


def test_boards_that_wait_are_woken_for_a_lease_that_ran_out(farm: Farm, clock: Clock):
    board, other = some_board(farm), some_board(farm, "other")
    some_run(farm, board, stand_ins=(other.id,))
    propose(farm, [0])
    claim(farm, board, lease_s=10)
    asked = [board.id, other.id]
    assert farm.jobs.waiting_boards(asked) == ()
    clock.advance(10.5)
    # no sweeper has run: what a claim would find, a bell rings for
    assert set(farm.jobs.waiting_boards(asked)) == set(asked)
    assert farm.jobs.claim_for_board(other.id, lease_s=10, told=True) is not None


def test_who_was_told_of_a_job_gets_it_or_nothing(farm: Farm):
    board = some_board(farm)
    run = some_run(farm, board)
    propose(farm, range(2))
    first = farm.jobs.claim_for_board(board.id, lease_s=10, owner="agent 1", told=True)
    assert first is not None
    assert [(a.attempt, a.owner) for a in farm.jobs.attempts(first.job.id)] == [(1, "agent 1")]
    assert farm.jobs.claim_for_board(board.id, lease_s=10, told=True) is None
    assert finish(farm, first).stored
    farm.runs.pause(run.id)
    assert farm.jobs.claim_for_board(board.id, lease_s=10, told=True) is None
    farm.runs.resume(run.id)
    farm.boards.quarantine(board.id, "hot", by="agent")
    assert farm.jobs.claim_for_board(board.id, lease_s=10, told=True) is None
    with pytest.raises(AbsentError):
        farm.jobs.claim_for_board("dev_" + "0" * 26, lease_s=10, told=True)
