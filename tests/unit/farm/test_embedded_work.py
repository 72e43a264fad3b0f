"""Solver work beside the API: runs that end, refusals, retries, leases that are lost."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import struct
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from api.solver_pool import PoolSettings, SolverPool
from db.farm.farm import Farm
from db.farm.job_records import NewJob
from db.farm.states import JobKind, JobState, RunState
from nestmap.farm.embedded import EmbeddedRunner
from nestmap.farm.work import work_on
from nestmap.subjects import load_subject
from nestmap.tuning.policy import INPUT_SEED
from nestmap.tuning.reference import make_workload
from tests.unit.farm.simulated_boards import LAYER, SimulatedBoard, new_run

SLOW = {
    "kind": "waterfall", "subject": {"name": "vgg16/24"}, "variant": "partial", "joint": True,
}  # fmt: skip
COUNT = {"kind": "count", "subject": {"name": "vgg16/7"}, "variant": "high-level"}


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    with Farm.open(tmp_path / "store.sqlite3") as opened:
        yield opened


@contextlib.asynccontextmanager
async def running(farm: Farm, lease_s: float = 30.0) -> AsyncIterator[SolverPool]:
    async with SolverPool(PoolSettings(children=1)) as pool:
        task = asyncio.create_task(EmbeddedRunner(farm, pool, lease_s=lease_s).run())
        try:
            yield pool
        finally:
            task.cancel()
            async with asyncio.timeout(60):  # a bound on hangs
                await asyncio.wait([task])


async def until(condition: Callable[[], Any], within_s: float = 60.0) -> Any:
    """What the condition gives once it is true; it may talk to the store."""
    async with asyncio.timeout(within_s):
        while not (found := await asyncio.to_thread(condition)):
            await asyncio.sleep(0.02)
        return found


def ended(farm: Farm, run_id: str) -> Callable[[], bool]:
    return lambda: farm.runs.run(run_id).state.ended


def solve_job(farm: Farm, **request: Any) -> str:
    payload = {"request": request, "limits": {"wall_s": 30, "cpu_s": 30, "memory_bytes": 2**31}}
    return farm.jobs.enqueue(NewJob(payload, "test")).value.id


def test_a_run_measures_its_budget_of_different_candidates_that_boards_can_run(
    farm: Farm, tmp_path: Path
):
    run = new_run(farm, candidates=12)

    async def main() -> None:
        async with running(farm):
            await until(ended(farm, run.id))

    with SimulatedBoard(farm, run.board_id) as board:
        asyncio.run(main())
    found = farm.runs.run(run.id)
    assert (found.state, found.reason) == (RunState.FINISHED, "candidates")
    assert len(set(board.measured)) == len(board.measured) == found.progress.measured == 12
    (study,) = farm.runs.studies(run.id)
    assert {
        m.candidate_id for m in farm.store.measurements(farm.store.study(study.study_id))
    } == set(board.measured)
    # Their jobs have the layer's inputs and reference, by hash.
    path = tmp_path / "layer.json"
    path.write_text(json.dumps(LAYER))
    workload = make_workload(load_subject(str(path), "high-level"), INPUT_SEED, {})
    for payload in board.payloads:
        assert payload["schema"] == "nestmap/measure-job/1"
        for name, entry in payload["workload"]["inputs"].items():
            data = farm.artifacts.read(entry["artifact"])
            array = workload.inputs[name]
            assert (entry["dtype"], entry["shape"]) == ("float32", list(array.shape))
            assert data == struct.pack(f"<{array.size}f", *array.ravel().tolist())
        expected = farm.artifacts.read(payload["workload"]["expected"]["artifact"])
        assert len(expected) == 4 * workload.expected.size
        source = farm.artifacts.read(payload["plan"]["source"]["artifact"])
        assert hashlib.sha256(source).hexdigest() == payload["plan"]["source"]["artifact"]
        assert b"kernel" in source


def test_a_space_that_is_exhausted_ends_its_run(farm: Farm):
    tiny = {**LAYER, "channels": 1, "height": 3, "width": 3, "filters": 1, "name": "tiny"}
    run = new_run(farm, candidates=100_000, subject={"document": tiny}, pin=_all_pinned(tiny))

    async def main() -> None:
        async with running(farm):
            await until(ended(farm, run.id))

    with SimulatedBoard(farm, run.board_id) as board:
        asyncio.run(main())
    found = farm.runs.run(run.id)
    assert (found.state, found.reason) == (RunState.FINISHED, "exhausted")
    assert len(board.measured) >= 1


def _all_pinned(layer: dict[str, Any]) -> list[str]:
    from tests.unit.tasks.child_replies import ask

    about = {"subject": {"document": layer}, "variant": "high-level", "device": "pocl"}
    (item,) = ask(None, kind="mappings", limit=1, **about).items
    return [f"{name}={code}" for name, code in item["mapping"].items()]


def test_runs_that_no_attempt_can_do_fail_with_their_reasons(farm: Farm):
    hopeless: list[tuple[dict[str, Any], str]] = [
        ({"subject": {"name": "vgg16/99"}}, "no layer"),
        ({"variants": ["sideways"]}, "sideways"),
        ({"strategy": "luck"}, "strategy"),
        ({"colour": "red"}, "unknown field"),
        ({"subject": {"document": {"tree": []}}}, ""),
    ]
    runs = [
        (new_run(farm, candidates=4, name=f"board-{place}", **request), said)
        for place, (request, said) in enumerate(hopeless)
    ]

    async def main() -> None:
        async with running(farm):
            for run, _ in runs:
                await until(ended(farm, run.id))

    asyncio.run(main())
    for run, said in runs:
        found = farm.runs.run(run.id)
        assert found.state is RunState.FAILED
        assert found.reason.startswith("no candidates: ") and said in found.reason


def test_a_run_waits_for_a_device_that_has_not_called_yet(farm: Farm):
    run = new_run(farm, candidates=4, facts={}, profile=None)

    async def main() -> None:
        async with running(farm):
            (job,) = farm.jobs.of_run(run.id)
            await until(lambda: farm.jobs.attempts(job.id))
            await until(lambda: farm.jobs.job(job.id).state is JobState.QUEUED)

    asyncio.run(main())
    assert farm.runs.run(run.id).state is RunState.QUEUED


def test_solve_jobs_keep_answers_and_refusals(farm: Farm):
    good = solve_job(farm, **COUNT)
    bad = solve_job(farm, **COUNT, colour="red")

    async def main() -> None:
        async with running(farm):
            for job in (good, bad):
                await until(lambda job=job: farm.jobs.job(job).state.ended)

    asyncio.run(main())
    answer, refusal = farm.jobs.job(good), farm.jobs.job(bad)
    assert answer.state is refusal.state is JobState.DONE
    assert answer.result["end"]["complete"] is True
    assert refusal.result["problem"]["type"] == "/problems/invalid-input"
    assert refusal.result["problem"]["errors"][0]["pointer"] == "/colour"


ANSWERS = """
import json, sys
def say(**value): print(json.dumps(value), flush=True)
say(ready={})
for line in sys.stdin:
    me = json.loads(line).get("id")
    if me is not None:
        say(id=me, begun={})
        say(id=me, end={"complete": True})
"""
CRASHES = "import json, sys, os; print(json.dumps({'ready': {}}), flush=True); input(); os._exit(9)"


def test_a_job_whose_child_keeps_dying_stops_after_its_attempts(farm: Farm):
    job = solve_job(farm, **COUNT)

    async def main() -> None:
        pool_settings = PoolSettings(children=1)
        async with SolverPool(pool_settings, [sys.executable, "-c", CRASHES]) as pool:
            for _ in range(3):
                claim = await until(
                    lambda: farm.jobs.claim_work([JobKind.SOLVE], "test", lease_s=30)
                )
                assert await work_on(claim, farm, pool) == "failed"

    asyncio.run(main())
    found = farm.jobs.job(job)
    assert found.state is JobState.FAILED
    assert len(farm.jobs.attempts(job)) == 3


def test_a_worker_that_stops_gives_its_job_back_at_once(farm: Farm):
    job = solve_job(farm, **SLOW)

    async def main() -> None:
        async with running(farm):
            await until(lambda: farm.jobs.job(job).state is JobState.LEASED)

    asyncio.run(main())
    assert farm.jobs.job(job).state is JobState.QUEUED
    (attempt,) = farm.jobs.attempts(job)
    assert "stopping" in attempt.reason


def test_a_worker_that_is_stopped_just_when_a_job_has_ended_stops(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
):
    """A cancellation that comes while the heartbeat is being stopped was once lost with it."""
    job = solve_job(farm, **COUNT)
    working: list[asyncio.Task[str]] = []

    async def beat(*arguments: object) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            working[0].cancel()
            raise

    monkeypatch.setattr("nestmap.farm.work._beat", beat)

    async def main() -> None:
        command = [sys.executable, "-c", ANSWERS]
        async with SolverPool(PoolSettings(children=1), command) as pool:
            claim = await until(lambda: farm.jobs.claim_work([JobKind.SOLVE], "test", lease_s=30))
            working.append(asyncio.create_task(work_on(claim, farm, pool)))
            await asyncio.wait(working)
            assert working[0].cancelled()

    asyncio.run(main())
    assert farm.jobs.job(job).state is JobState.DONE


def test_a_lease_that_is_taken_away_stops_the_work_and_writes_nothing(farm: Farm):
    job = solve_job(farm, **SLOW)

    async def main() -> None:
        async with running(farm, lease_s=0.6) as pool:
            await until(lambda: farm.jobs.job(job).state is JobState.LEASED)
            await until(lambda: pool.idle == 0)
            farm.jobs.cancel(job)
            await until(lambda: pool.idle == 1)

    asyncio.run(main())
    found = farm.jobs.job(job)
    assert found.state is JobState.CANCELLED and found.result is None


def test_work_that_takes_longer_than_its_lease_keeps_it(farm: Farm):
    job = solve_job(farm, kind="count", subject={"name": "vgg16/28"}, variant="direct")

    async def main() -> None:
        async with running(farm, lease_s=0.3):
            await until(lambda: farm.jobs.job(job).state.ended)

    asyncio.run(main())
    assert farm.jobs.job(job).state is JobState.DONE
    assert len(farm.jobs.attempts(job)) == 1
