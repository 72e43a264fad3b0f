"""A board holds no run for ever: a lease has an end that no heartbeat moves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from db.farm.errors import ConflictError, StaleLease
from db.farm.farm import Farm
from db.farm.states import AttemptEnd, JobKind, JobState, RunState
from tests.unit.db.farm_values import (
    FACTS,
    Clock,
    claim,
    finish,
    propose,
    some_board,
    some_proposal,
    some_run,
    timed,
)


@pytest.mark.parametrize(
    ("payload", "attempt_s"), [({}, 360), ({"timeout_s": 6}, 306), ({"timeout_s": 600.0}, 900)]
)
def test_an_attempt_ends_however_often_its_board_calls(
    farm: Farm, clock: Clock, payload: dict[str, float], attempt_s: int
) -> None:
    """After its candidate's time, 60 s where that is not said, and 300 to fetch things."""
    board = some_board(farm)
    run = some_run(farm, board)
    proposing = farm.jobs.claim_work([JobKind.PROPOSE], "s", lease_s=30)
    assert proposing is not None
    proposal = some_proposal([0])
    candidates = tuple(replace(one, payload=payload) for one in proposal.candidates)
    farm.results.finish_propose(proposing.lease, replace(proposal, candidates=candidates))
    claimed = claim(farm, board, lease_s=10)
    began = clock()
    while not (beat := farm.jobs.heartbeat(claimed.lease, lease_s=30)).cancel:
        assert (beat.lease_until - began).total_seconds() <= attempt_s
        clock.advance(9)
        farm.jobs.expire()
    assert (clock() - began).total_seconds() == attempt_s
    clock.advance(1)
    assert farm.jobs.heartbeat(claimed.lease, lease_s=30).cancel
    assert farm.jobs.expire().expired == (claimed.job.id,)
    assert farm.jobs.heartbeat(claimed.lease, lease_s=30).cancel  # not taken back
    assert farm.jobs.job(claimed.job.id).state is JobState.QUEUED
    # What it measured counts until another attempt has begun.
    again = claim(farm, board)
    assert again.lease.attempt == 2
    with pytest.raises(StaleLease):
        finish(farm, claimed)
    assert farm.runs.run(run.id).progress.measured == 0


def test_each_attempt_at_a_job_has_time_of_its_own(farm: Farm, clock: Clock) -> None:
    """The time of a second one does not count from when the first began."""
    board = some_board(farm)
    some_run(farm, board)
    propose(farm, [0])
    first = claim(farm, board, lease_s=10)
    clock.advance(400)  # the first is over, and nobody kept it
    second = claim(farm, board, lease_s=10)
    assert (second.job.id, second.lease.attempt) == (first.job.id, 2)
    began = clock()
    while not farm.jobs.heartbeat(second.lease, lease_s=30).cancel:
        clock.advance(9)
    assert (clock() - began).total_seconds() == 360


def test_a_cancelled_run_ends_though_its_board_goes_on_calling(farm: Farm, clock: Clock) -> None:
    board = some_board(farm)
    run = some_run(farm, board)
    propose(farm, [0])
    claimed = claim(farm, board, lease_s=30)
    assert farm.runs.cancel(run.id).state is RunState.CANCELLING
    for _ in range(3):
        assert farm.jobs.heartbeat(claimed.lease, lease_s=30).cancel
        clock.advance(9)
        assert farm.jobs.expire().expired == ()
    clock.advance(4)
    assert farm.jobs.heartbeat(claimed.lease, lease_s=30).cancel
    assert farm.jobs.expire().expired == (claimed.job.id,)
    assert farm.runs.run(run.id).state is RunState.CANCELLED
    with pytest.raises(StaleLease):
        farm.jobs.heartbeat(claimed.lease, lease_s=30)


def test_a_disabled_board_loses_its_job_at_once(farm: Farm) -> None:
    board, other = some_board(farm), some_board(farm, "other")
    some_run(farm, board, stand_ins=(other.id,))
    propose(farm, [0])
    claimed = claim(farm, board, lease_s=30)
    farm.boards.disable(board.id, "in the wrong hands", by="admin")
    assert farm.jobs.job(claimed.job.id).state is JobState.QUEUED
    (attempt,) = farm.jobs.attempts(claimed.job.id)
    assert (attempt.ending, attempt.reason) == (AttemptEnd.EXPIRED, "the board was disabled")
    for _ in range(2):
        beat = farm.jobs.heartbeat(claimed.lease, lease_s=30, board_id=board.id)
        assert beat.cancel  # and the job is not the board's again
    assert farm.jobs.job(claimed.job.id).state is JobState.QUEUED
    with pytest.raises(ConflictError, match="is disabled"):
        farm.results.finish_measure(claimed.lease, timed(1_000), facts=FACTS, board_id=board.id)
    taken = claim(farm, other)
    assert taken.job.id == claimed.job.id
    assert finish(farm, taken).stored
    farm.boards.disable(board.id, "still", by="admin")  # it holds nothing


def test_a_run_that_is_cancelled_ends_when_its_board_is_disabled(farm: Farm) -> None:
    board = some_board(farm)
    run = some_run(farm, board)
    propose(farm, [0])
    claimed = claim(farm, board, lease_s=30)
    farm.runs.cancel(run.id)
    farm.boards.disable(board.id, "in the wrong hands", by="admin")
    assert farm.runs.run(run.id).state is RunState.CANCELLED
    with pytest.raises(StaleLease):
        farm.jobs.heartbeat(claimed.lease, lease_s=30)
