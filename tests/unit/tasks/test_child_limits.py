"""A real solver child within its limits: memory, processor time, wall time, cancelling."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from api.solver_child import child_environment
from api.solver_pool import PoolSettings, SolverLimits, SolverPool, SolverProblem
from tests.unit.tasks.child_replies import HIGH_LEVEL

MIB = 2**20
#: No part of a page is an answer, where a count may be "at least so many".
PAGE = {"kind": "mappings", "subject": {"name": "vgg16/7"}, "variant": "direct", "limit": 400}
SLOW = {"kind": "waterfall", "subject": {"name": "vgg16/24"}, "variant": "partial", "joint": True}


def wide_products(parameters: int) -> dict[str, Any]:
    """A space whose model takes gigabytes: products of parameters with wide domains."""
    names = [f"p{number}" for number in range(parameters)]
    return {
        "schema": "nestmap/space/1",
        "name": "products",
        "parameters": {name: list(range(1, 600)) for name in names},
        "constraints": [f"{a} * {b} % 7 != 3" for a, b in pairwise(names)]
        + [" + ".join(f"{a} * {b}" for a, b in pairwise(names)) + " == 12345"],
    }


def in_pool(work: Any) -> Any:
    async def main() -> Any:
        async with SolverPool(PoolSettings(children=1)) as pool:
            return await work(pool)

    return asyncio.run(main())


async def peak_mib(pid: int) -> float:
    def read() -> float:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no such process")

    return await asyncio.to_thread(read)


HOSTILE = {
    "products listed": {
        "kind": "mappings", "subject": {"document": wide_products(40)}, "joint": True,
    },
    "products explained": {"kind": "explain", "subject": {"document": wide_products(40)}},
    "many products": {"kind": "count", "subject": {"document": wide_products(200)}},
    "brackets": {"kind": "count", "subject": {"text": "(" * 200_000}},
    "maps": {"kind": "describe", "subject": {"document": {"tree": [{"id": 1}] * 90_000}}},
    "kernels": {"kind": "constraints", "subject": {"document": {"kernels": [{}] * 100_000}}},
}  # fmt: skip


def test_hostile_input_costs_bounded_memory_and_time():
    limits = SolverLimits(memory_bytes=600 * MIB, cpu_s=1, wall_s=3)

    async def work(pool: SolverPool) -> dict[str, float]:
        return {name: await peak_of(pool, request) for name, request in HOSTILE.items()}

    async def peak_of(pool: SolverPool, request: dict[str, Any]) -> float:
        (pid,) = pool.pids
        # Once before the request: the child may end before the watch has its turn.
        watched = [await peak_mib(pid)]

        async def watch() -> None:
            while True:
                try:
                    watched.append(await peak_mib(pid))
                except (OSError, AssertionError):
                    return
                await asyncio.sleep(0.02)

        watching = asyncio.create_task(watch())
        try:
            async with asyncio.timeout(30):
                await pool.ask(request, limits)
        except SolverProblem as problem:
            assert problem.slug in ("solver-limit", "too-complex", "invalid-input", "unsatisfiable")
        finally:
            watching.cancel()
        # The pool works on, whatever became of the child.
        assert (await pool.ask({"kind": "count", **HIGH_LEVEL})).end["count"] > 0
        return max(watched)

    peaks = in_pool(work)
    assert max(peaks.values()) < 600, peaks


def test_memory_that_is_not_there_is_a_reason_of_its_own():
    async def work(pool: SolverPool) -> SolverProblem:
        request = {"kind": "count", "subject": {"name": "vgg16/7"}, "variant": "direct"}
        with pytest.raises(SolverProblem) as found:
            await pool.ask(request, SolverLimits(memory_bytes=MIB))
        return found.value

    problem = in_pool(work)
    assert problem.slug in ("solver-limit", "too-complex")
    assert problem.reason in ("memory", "")


@pytest.mark.parametrize(
    ("request_", "limits", "reason"),
    [
        (SLOW, SolverLimits(cpu_s=1, wall_s=60), "cpu"),
        (PAGE, SolverLimits(cpu_s=60, wall_s=0.3), "time"),
    ],
)
def test_time_is_over_when_it_is_over(request_: dict[str, Any], limits: SolverLimits, reason: str):
    async def work(pool: SolverPool) -> SolverProblem:
        with pytest.raises(SolverProblem) as found:
            await pool.ask(request_, limits)
        return found.value

    assert in_pool(work).reason == reason


def test_what_was_counted_when_time_was_over_is_told():
    async def work(pool: SolverPool) -> dict[str, Any]:
        # Long enough for a busy machine to derive the space, far too short to count it.
        return (await pool.ask(SLOW, SolverLimits(wall_s=2.0))).end

    assert in_pool(work)["complete"] is False


def test_a_cancelled_child_is_free_within_a_second_and_keeps_what_it_knows():
    async def work(pool: SolverPool) -> None:
        before = pool.pids
        asking = asyncio.create_task(pool.ask(SLOW))
        await asyncio.sleep(1.0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        async with asyncio.timeout(5):  # a bound on hangs: the machine may be busy
            while not pool.idle:
                await asyncio.sleep(0.01)
        assert pool.pids == before or pool.deaths == 1

    in_pool(work)


def test_a_child_in_a_pipe_answers_everything_before_it_ends():
    requests = [
        {"id": "1", "kind": "count", **HIGH_LEVEL},
        {"id": "2", "kind": "nothing"},
        {"id": "3", "kind": "constraints", **HIGH_LEVEL},
    ]
    text = "".join(json.dumps(request) + "\n" for request in requests)
    found = subprocess.run(
        [sys.executable, "-m", "nestmap.tasks"], input=text, capture_output=True, text=True,
        check=True, env=child_environment(), timeout=60,
    )  # fmt: skip
    replies = [json.loads(line) for line in found.stdout.splitlines()]
    assert "ready" in replies[0]
    ends = [(r["id"], "end" in r) for r in replies[1:] if "end" in r or "problem" in r]
    assert ends == [("1", True), ("2", False), ("3", True)]
    assert found.stderr == ""
