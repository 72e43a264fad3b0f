"""Turns between owners: however much one has queued, another is next; nobody waits for ever."""

from __future__ import annotations

from db.farm.farm import Farm
from db.farm.states import JobKind
from db.farm.turns import TURNS, next_ranks, priority_of
from tests.unit.db.farm_values import (
    Clock,
    claim,
    finish,
    some_board,
    some_proposal,
    some_run,
)


def owners_of_claims(farm: Farm, number: int) -> list[str]:
    """Whose run each of the next ``propose`` jobs is for; each is ended without candidates."""
    owners: list[str] = []
    for _ in range(number):
        found = farm.jobs.claim_work([JobKind.PROPOSE], "solver", lease_s=30)
        assert found is not None
        owners.append(found.job.principal)
        farm.results.finish_propose(found.lease, some_proposal([], exhausted=True))
    return owners


def test_a_hundred_runs_of_one_let_another_be_next(farm: Farm) -> None:
    board = some_board(farm)
    for _ in range(100):
        some_run(farm, board, principal="greedy")
    owners_of_claims(farm, 10)
    for _ in range(3):
        some_run(farm, board, principal="honest")
    owners = owners_of_claims(farm, 8)
    assert owners.count("honest") == 3
    assert owners[:2] in (["greedy", "honest"], ["honest", "greedy"])


def test_nobody_waits_for_ever_behind_who_comes_again_and_again(farm: Farm, clock: Clock) -> None:
    board = some_board(farm)
    for _ in range(20):
        clock.advance(0.01)
        some_run(farm, board, principal="patient")
    served: list[str] = []
    for _ in range(20):
        # Of equal turns the earlier is first; within a millisecond chance decides.
        clock.advance(0.01)
        some_run(farm, board, principal="eager")
        served += owners_of_claims(farm, 1)
    assert served.count("patient") >= 9


def test_candidates_of_two_owners_take_turns_on_a_board(farm: Farm) -> None:
    board = some_board(farm)
    for owner, numbers in (("greedy", range(40)), ("honest", range(50, 54))):
        some_run(farm, board, principal=owner, budget_candidates=40)
        found = farm.jobs.claim_work([JobKind.PROPOSE], "solver", lease_s=30)
        assert found is not None
        farm.results.finish_propose(found.lease, some_proposal(list(numbers)))
    owners: list[str] = []
    for _ in range(10):
        claimed = claim(farm, board)
        owners.append(claimed.job.principal)
        finish(farm, claimed)
    assert owners.count("honest") == 4


def test_who_takes_long_waits_longer(farm: Farm, clock: Clock) -> None:
    board = some_board(farm)
    for owner, numbers in (("slow", range(20)), ("quick", range(50, 60))):
        some_run(farm, board, principal=owner, budget_candidates=40)
        found = farm.jobs.claim_work([JobKind.PROPOSE], "solver", lease_s=30)
        assert found is not None
        farm.results.finish_propose(found.lease, some_proposal(list(numbers)))
    used = {"slow": 0, "quick": 0}
    while used["quick"] < 10:
        claimed = claim(farm, board)
        used[claimed.job.principal] += 1
        clock.advance(9.5 if claimed.job.principal == "slow" else 0.2)
        finish(farm, claimed)
    assert used["slow"] <= 2  # one beside the other they would be ten


def test_priority_comes_before_turns(farm: Farm) -> None:
    """Which is why only admins have more than 0 (tests/hostile/test_owners.py)."""
    board = some_board(farm)
    some_run(farm, board, principal="one")
    some_run(farm, board, principal="other", priority=5)
    some_run(farm, board, principal="third", priority=-5)
    assert owners_of_claims(farm, 3) == ["other", "one", "third"]


def test_turns_end_within_their_priority(farm: Farm) -> None:
    with farm.store._transactions.write() as session:
        for priority in (-100, -1, 0, 7, 100):
            ranks = next_ranks(session, priority, "me", TURNS + 2)
            assert {priority_of(rank) for rank in (ranks[0], ranks[1], ranks[-1])} == {priority}
            assert ranks[-1] - ranks[0] == TURNS - 1
