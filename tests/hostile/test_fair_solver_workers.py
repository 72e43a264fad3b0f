"""One owner's proposal of minutes holds no process of a farm for all others."""

from __future__ import annotations

import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.solver_pool import PoolSettings, SolverLimits, SolverPool
from db.farm.farm import Farm
from nestmap.farm import proposing, solver_worker
from nestmap.farm.solver_worker import WorkerProcess
from tests.unit.db.farm_values import some_board, some_proposal, some_run
from tests.unit.tasks.test_solver_pool import CHILD


@pytest.fixture(autouse=True)
def simple_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children that answer at once, or hang for the owner ``hostile``."""

    def asked(history: Any, *more: Any) -> dict[str, Any]:
        del more
        hangs = history.run.principal == "hostile"
        return {"kind": "wait" if hangs else "echo", "subject": "a"}

    def pool(settings: PoolSettings) -> SolverPool:
        return SolverPool(settings, [sys.executable, "-c", textwrap.dedent(CHILD)])

    def answered(*given: Any) -> Any:
        del given
        return some_proposal([], exhausted=True)

    monkeypatch.setattr(proposing, "propose_request", asked)
    monkeypatch.setattr(proposing, "_proposal", answered)
    monkeypatch.setattr(solver_worker, "SolverPool", pool)
    monkeypatch.setattr(solver_worker, "_LOOK_S", 0.05)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def test_a_proposal_that_hangs_lets_the_only_process_work_for_others(tmp_path: Path) -> None:
    store = tmp_path / "farm.db"
    with Farm.open(store) as farm:
        board = some_board(farm)
        bad = [some_run(farm, board, principal="hostile").id for _ in range(4)]
        process = WorkerProcess(str(store), SolverLimits(), lease_s=0.6)
        answers: list[str] = []
        bell = threading.Thread(target=lambda: answers.append(process.work()))
        bell.start()
        until(lambda: any(jobs[-1] == "leased" for jobs in farm.jobs.counts()))
        good = [some_run(farm, board, principal=name).id for name in ("a", "b", "a")]
        until(lambda: all(farm.runs.run(run_id).state.ended for run_id in good))
        assert bell.is_alive()
        # Of the owner of the one that hangs no other is begun.
        states = [farm.runs.run(run_id).state for run_id in bad]
        assert [state.ended for state in states] == [False] * 4
        # A signal lets what is under way end, and begins nothing more.
        process.stop()
        late = some_run(farm, board, principal="late").id
        time.sleep(0.3)
        for run_id in bad:
            farm.runs.cancel(run_id)
        bell.join(30)
        assert answers == ["dropped"]
        assert not farm.runs.run(late).state.ended
        process.close()
