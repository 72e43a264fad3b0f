"""Whoever's proposals take long, fail or hang waits for that himself; others' go on beside."""

from __future__ import annotations

import asyncio
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.solver_pool import PoolSettings, SolverPool
from db.farm.farm import Farm
from db.farm.states import JobKind
from db.farm.turns import HeldSeconds
from nestmap.farm import embedded, proposing
from nestmap.farm.embedded import EmbeddedRunner
from tests.unit.db.farm_values import Clock, proposal, some_board, some_proposal, some_run, taken
from tests.unit.tasks.test_solver_pool import CHILD, until


@pytest.fixture
def clock() -> Clock:
    """The farm's time."""
    return Clock()


@pytest.fixture
def farm(tmp_path: Path, clock: Clock) -> Iterator[Farm]:
    """An empty farm, with a clock that is set by hand."""
    with Farm.open(tmp_path / "farm.db", now=clock) as farm:
        yield farm


@pytest.mark.parametrize("ending", ["failed", "refused", "expired", "cancelled"])
def test_a_proposal_costs_its_owner_however_it_ends(farm: Farm, clock: Clock, ending: str) -> None:
    board = some_board(farm)
    runs = [some_run(farm, board, principal="hostile") for _ in range(4)]
    claimed = proposal(farm)
    assert claimed.job.run_id in {run.id for run in runs}
    for _ in range(12):
        some_run(farm, board, principal="honest")
    for _ in range(9):
        clock.advance(20)
        farm.jobs.heartbeat(claimed.lease, lease_s=30)
    if ending == "failed":
        farm.jobs.fail(claimed.lease, "out of memory", retry_after_s=0)
    elif ending == "refused":
        farm.runs.fail(str(claimed.job.run_id), "no candidates")
    elif ending == "cancelled":
        farm.runs.cancel(str(claimed.job.run_id))
    else:
        clock.advance(31)
        farm.jobs.expire()
    clock.advance(1)
    assert taken(farm, 12) == ["honest"] * 12


def test_a_run_whose_proposals_take_long_waits_for_its_next(farm: Farm, clock: Clock) -> None:
    board = some_board(farm)
    some_run(farm, board, principal="hostile")
    claimed = proposal(farm)
    for _ in range(9):
        clock.advance(20)
        farm.jobs.heartbeat(claimed.lease, lease_s=30)
    for _ in range(12):
        some_run(farm, board, principal="honest")
    # It asks for the next one at once: nothing of it was measured.
    farm.results.finish_propose(claimed.lease, some_proposal([1]))
    assert taken(farm, 12) == ["honest"] * 12
    assert taken(farm, 1) == ["hostile"]


def test_who_has_a_proposal_under_way_comes_after_all_who_have_none(farm: Farm) -> None:
    board = some_board(farm)
    for _ in range(5):
        some_run(farm, board, principal="hostile")
    assert proposal(farm).job.principal == "hostile"
    some_run(farm, board, principal="honest", priority=-5)
    assert proposal(farm).job.principal == "honest"
    assert proposal(farm).job.principal == "hostile"
    claimed = farm.jobs.claim_work([JobKind.PROPOSE], "solver", lease_s=30, one_each=True)
    assert claimed is None


def test_a_clock_that_jumps_charges_nobody(farm: Farm, clock: Clock) -> None:
    board = some_board(farm)
    for _ in range(3):
        some_run(farm, board, principal="unlucky")
    steady = HeldSeconds(lambda: 0.0)
    farm.jobs._held_seconds = farm.results._held_seconds = steady
    claimed = proposal(farm)
    clock.advance(86_400)
    farm.results.finish_propose(claimed.lease, some_proposal([], exhausted=True))
    for _ in range(5):
        some_run(farm, board, principal="other")
    assert taken(farm, 4).count("unlucky") == 2


def test_a_proposal_that_hangs_is_no_delay_to_another_owner(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It held the only child for 600 s, and every run waited."""

    def asked(history: Any, *more: Any) -> dict[str, Any]:
        del more
        hangs = history.run.principal == "hostile"
        return {"kind": "wait" if hangs else "echo", "subject": "a"}

    done: list[str] = []

    def answered(*given: Any) -> Any:
        done.append("honest")
        return some_proposal([], exhausted=True)

    monkeypatch.setattr(proposing, "propose_request", asked)
    monkeypatch.setattr(proposing, "_proposal", answered)
    assert embedded.LEASE_S > 10
    board = some_board(farm)
    for _ in range(6):
        some_run(farm, board, principal="hostile")

    async def main() -> None:
        command = [sys.executable, "-c", textwrap.dedent(CHILD)]
        async with SolverPool(PoolSettings(children=1, most_extra=2), command) as pool:
            runner = EmbeddedRunner(farm, pool, kinds=(JobKind.PROPOSE,), at_once=3, one_each=True)
            running = asyncio.create_task(runner.run())
            await asyncio.sleep(0.5)
            for _ in range(3):
                some_run(farm, board, principal="honest")
            runner.ring()
            await until(lambda: len(done) == 3)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())
