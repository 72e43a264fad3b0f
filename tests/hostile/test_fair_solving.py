"""Who asks for much delays nobody else: children go round, and a stalled reader holds none."""

from __future__ import annotations

import asyncio
import sys
import textwrap
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from api import solving
from api.auth import ASKING
from api.database import Database
from api.observing import Metrics
from api.solver_pool import PoolSettings, SolverLimits, SolverPool, SolverProblem
from api.solving import Solving
from nestmap.farm.embedded import EmbeddedRunner
from tests.unit.tasks.test_solver_pool import CHILD, echo, until

#: A child as in the tests of the pool, which lists mappings too.
LISTS = """
    elif kind == "mappings":
        after, most = request.get("after", 0), request.get("limit", 100_000)
        for number in range(after, min(after + most, 100_000)):
            if me in cancelled: break
            say(id=me, item={"number": number + 1})
        say(id=me, end={"count": most, "next": None, "of": "mappings"})
"""


@asynccontextmanager
async def pool_of(children: int, **settings: Any) -> AsyncIterator[SolverPool]:
    command = [sys.executable, "-c", textwrap.dedent(CHILD) + LISTS]
    async with SolverPool(PoolSettings(children=children, **settings), command) as pool:
        yield pool


def greedy(pool: SolverPool, who: str, count: int) -> list[asyncio.Task[Any]]:
    return [asyncio.create_task(pool.ask({"kind": "wait"}, who=who)) for _ in range(count)]


async def ended(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_somebody_is_answered_at_once_while_others_hold_every_child() -> None:
    async def main() -> None:
        async with pool_of(2) as pool:
            hostile = [*greedy(pool, "a", 8), *greedy(pool, "b", 8)]
            await until(lambda: pool.waiting == 14 or len(pool.pids) > 2)
            times: list[float] = []
            for _ in range(10):
                began = time.monotonic()
                await pool.ask(echo(), who="honest")
                times.append(time.monotonic() - began)
            # Once a child had to be started for it; then it stays while others hold the rest.
            assert sorted(times)[5] < 0.5 and max(times) < 10
            assert len(pool.pids) <= 2 + 4
            await ended(hostile)
            await until(lambda: len(pool.pids) == 2)
            assert pool.deaths == 0

    asyncio.run(main())


def test_nobody_takes_every_place_of_the_queue() -> None:
    async def main() -> None:
        async with pool_of(1, most_waiting=8, most_waiting_each=3) as pool:
            hostile = greedy(pool, "a", 4)
            await until(lambda: pool.waiting == 3)
            with pytest.raises(SolverProblem, match="with this token") as refused:
                await pool.ask(echo(), who="a")
            assert (refused.value.slug, refused.value.reason) == ("too-many-requests", "full")
            assert (await pool.ask(echo(), who="b")).end == {"of": "a"}
            await ended(hostile)

    asyncio.run(main())


def test_a_job_waits_for_room_and_loses_no_attempt() -> None:
    async def main() -> None:
        async with pool_of(1, most_waiting=1, most_extra=0, wait_s=0.1) as pool:
            hostile = greedy(pool, "a", 2)
            await until(lambda: pool.waiting == 1)
            waiting = asyncio.create_task(pool.ask_when_free(echo(), who="run"))
            await asyncio.sleep(1.5)
            assert not waiting.done()
            await ended(hostile)
            assert (await waiting).end == {"of": "a"}

    asyncio.run(main())


@pytest.mark.parametrize("limit", [None, 7_000])
def test_a_reader_that_stands_still_gives_its_child_back_and_reads_on(
    monkeypatch: pytest.MonkeyPatch, limit: int | None
) -> None:
    monkeypatch.setattr(solving, "_STALLED_S", 0.2)

    async def main() -> None:
        ASKING.set("reader")
        async with pool_of(1, most_extra=0) as pool:
            asked = {"kind": "mappings"} | ({} if limit is None else {"limit": limit})
            database = Database(1)
            asking = Solving(pool, None, database, Metrics(), 60.0)
            numbers: list[int] = []
            found = asking.mappings(asked, SolverLimits())
            async for kind, value in found:
                if kind == "end":
                    assert value["count"] == len(numbers)
                    break
                numbers.append(value["number"])
                if len(numbers) in (1, 50):
                    # It reads nothing: another's question is answered by the only child.
                    await until(lambda: pool.idle == 1)
                    assert (await pool.ask(echo(), who="honest")).end == {"of": "a"}
            assert numbers == list(range(1, (limit or 100_000) + 1))
            await found.aclose()

    asyncio.run(main())


def test_a_reader_that_is_slow_all_the_time_holds_a_child_for_a_small_part_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One mapping every 4 s, say: no pause is long enough to be a stall."""
    monkeypatch.setattr(solving, "_STALLED_S", 0.25)
    every_s, count = 0.2, 40

    async def main() -> None:
        ASKING.set("reader")
        async with pool_of(1, most_extra=0) as pool:
            asking = Solving(pool, None, Database(1), Metrics(), 60.0)
            found = asking.mappings({"kind": "mappings"}, SolverLimits())
            looks: list[int] = []
            async for _ in found:
                for _ in range(10):
                    looks.append(pool.idle)
                    await asyncio.sleep(every_s / 10)
                if len(looks) >= count * 10:
                    break
            await found.aclose()
            # Of 3.2 s, in which what was found ahead is read, the child waits for 0.25 s.
            assert sum(looks) > 0.7 * len(looks)

    asyncio.run(main())


def test_a_runner_claims_its_kinds_alone() -> None:
    from db.farm.states import JobKind

    claimed: list[Any] = []

    class Jobs:
        def claim_work(self, kinds: Any, owner: str, *, lease_s: float, one_each: bool) -> None:
            claimed.append(kinds)

    class Farm:
        jobs = Jobs()

    async def main() -> None:
        runner = EmbeddedRunner(cast(Any, Farm()), cast(SolverPool, None), kinds=(JobKind.PROPOSE,))
        running = asyncio.create_task(runner.run())
        await until(lambda: len(claimed) > 1)
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(main())
    assert set(claimed) == {(JobKind.PROPOSE,)}
