"""A clock that jumps and a service that was away do not spend the seconds of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from db.farm.farm import Farm
from db.farm.lifecycle import MOST_UNSEEN_S
from db.farm.states import RunState
from tests.unit.db.farm_values import Clock, propose, some_board, some_run

DAY_S = 86_400.0


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S, 3_600.0, -5.0])
def test_seconds_of_a_run_go_on_over_a_jump_of_the_clock(tmp_path: Path, jump_s: float) -> None:
    clock = Clock()
    with Farm.open(tmp_path / "store.sqlite3", clock) as farm:
        run = some_run(farm, some_board(farm), budget_seconds=600.0)
        propose(farm, range(3))
        spend(farm, clock, 60)
        clock.advance(jump_s)
        spend(farm, clock, 60)
        found = farm.runs.run(run.id)
        assert found.state is RunState.RUNNING
        assert found.progress.active_s == pytest.approx(120, abs=MOST_UNSEEN_S)
        spend(farm, clock, 500)
        ended = farm.runs.run(run.id)
        assert (ended.state, ended.reason) == (RunState.FINISHED, "seconds")
        assert ended.progress.active_s == pytest.approx(600, abs=1)


def test_readers_between_two_looks_are_not_fooled_either(tmp_path: Path) -> None:
    clock = Clock()
    with Farm.open(tmp_path / "store.sqlite3", clock) as farm:
        run = some_run(farm, some_board(farm), budget_seconds=600.0)
        propose(farm, range(1))
        spend(farm, clock, 10)
        clock.advance(DAY_S)
        assert farm.runs.run(run.id).progress.active_s <= 10 + MOST_UNSEEN_S
        farm.runs.pause(run.id)
        assert farm.runs.run(run.id).progress.active_s <= 10 + MOST_UNSEEN_S


def spend(farm: Farm, clock: Clock, seconds: int) -> None:
    """Time passes, and the sweeper comes every second."""
    for _ in range(seconds):
        clock.advance(1)
        farm.jobs.expire()
