"""The pool of solver children: who gets which request, and what becomes of children that fail.

Most children here are a few lines of Python that speak the protocol, so that they can misbehave.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.solver_pool import PoolSettings, SolverLimits, SolverPool, SolverProblem

CHILD = """
import json, os, signal, subprocess, sys, threading, time
def say(**value):
    sys.stdout.write(json.dumps(value) + "\\n"); sys.stdout.flush()
cancelled = set()
lines = []
news = threading.Condition()
def read():
    for line in sys.stdin:
        value = json.loads(line)
        with news:
            if "cancel" in value: cancelled.add(value["cancel"])
            else: lines.append(value)
            news.notify()
    os._exit(0)
threading.Thread(target=read, daemon=True).start()
say(ready={})
while True:
    with news:
        while not lines: news.wait()
        request = lines.pop(0)
    me, kind = request["id"], request["kind"]
    say(id=me, begun={})
    if kind == "echo":
        say(id=me, progress={"done": 1})
        say(id=me, item={"pid": os.getpid()})
        say(id=me, end={"of": request["subject"]})
    elif kind == "wait":
        while me not in cancelled: time.sleep(0.01)
        say(id=me, problem={"type": "cancelled"})
    elif kind == "deaf":
        say(id=me, item={})
        time.sleep(600)
    elif kind == "crash": os.kill(os.getpid(), signal.SIGSEGV)
    elif kind == "memory": os._exit(71)
    elif kind == "alarm": os.kill(os.getpid(), signal.SIGALRM)
    elif kind == "nonsense":
        sys.stdout.write("nonsense\\n")
        sys.stdout.flush()
    elif kind == "other": say(id="somebody else's", end={})
    elif kind == "flood":
        for number in range(request["count"]): say(id=me, item={"number": number, "x": "x" * 1000})
        say(id=me, end={"pid": os.getpid()})
    elif kind == "refuse":
        problem = {"field": "/a", "message": "no", "found": "1", "allowed": "2"}
        say(id=me, problem={"type": "invalid-input", "detail": "no", "problems": [problem]})
    elif kind == "family":
        say(id=me, item={"pid": subprocess.Popen(["sleep", "600"]).pid})
        time.sleep(600)
"""


@contextlib.asynccontextmanager
async def pool_of(children: int = 1, **settings: Any) -> AsyncIterator[SolverPool]:
    command = [sys.executable, "-c", textwrap.dedent(CHILD)]
    async with SolverPool(PoolSettings(children=children, **settings), command) as pool:
        yield pool


def echo(subject: str = "a") -> dict[str, Any]:
    return {"kind": "echo", "subject": subject}


async def until(condition: Any, within_s: float = 10.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_pool_loads_no_solver():
    names = "('ortools', 'numpy', 'nestmap')"
    code = f"import sys, api.solver_pool; print([m for m in {names} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_child_starts_without_a_database():
    """Every child would take twice as long to start."""
    code = (
        "import sys, nestmap.tasks.__main__, nestmap.tasks.proposals; "
        "print({'sqlalchemy', 'alembic'} & set(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "set()"


def test_a_request_gets_its_items_progress_and_end():
    async def main() -> None:
        async with pool_of() as pool:
            heard: list[Any] = []
            answer = await pool.ask(echo("x"), progress=heard.append)
            assert answer.end == {"of": "x"} and len(answer.items) == 1 and heard == [{"done": 1}]

    asyncio.run(main())


def test_a_subject_stays_with_the_child_that_knows_it():
    async def main() -> None:
        async with pool_of(3) as pool:
            at: dict[str, set[int]] = {}
            for subject in ["a", "b", "c"] * 5:
                answer = await pool.ask(echo(subject))
                at.setdefault(subject, set()).add(answer.items[0]["pid"])
            assert all(len(pids) == 1 for pids in at.values())
            # New subjects go to whoever would forget least.
            assert len(set.union(*at.values())) == 3

    asyncio.run(main())


def test_a_full_queue_refuses_and_a_long_wait_ends():
    async def main() -> None:
        async with pool_of(1, most_waiting=1, wait_s=0.2) as pool:
            async with pool.stream({"kind": "wait"}):
                waiting = asyncio.create_task(pool.ask(echo()))
                await until(lambda: pool.waiting == 1)
                with pytest.raises(SolverProblem) as full:
                    await pool.ask(echo())
                assert (full.value.slug, full.value.reason) == ("unavailable", "full")
                with pytest.raises(SolverProblem, match="in time"):
                    await waiting
                assert pool.waiting == 0
            assert (await pool.ask(echo("z"))).end == {"of": "z"}

    asyncio.run(main())


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("crash", "crash"), ("memory", "memory"), ("alarm", "time"), ("nonsense", "crash"),
     ("other", "crash")],
)  # fmt: skip
def test_a_child_that_dies_has_a_reason_and_a_successor(kind: str, reason: str):
    async def main() -> None:
        async with pool_of() as pool:
            (before,) = pool.pids
            with pytest.raises(SolverProblem) as found:
                await pool.ask({"kind": kind})
            assert (found.value.slug, found.value.reason) == ("solver-limit", reason)
            assert (await pool.ask(echo())).items[0]["pid"] != before
            assert pool.deaths == 1 and not is_alive(before)

    asyncio.run(main())


def test_a_child_that_dies_idle_costs_nobody_anything():
    async def main() -> None:
        async with pool_of() as pool:
            for _ in range(3):
                os.kill(pool.pids[0], signal.SIGKILL)
                assert (await pool.ask(echo())).end == {"of": "a"}

    asyncio.run(main())


def test_a_refusal_keeps_its_type_and_fields():
    async def main() -> None:
        async with pool_of() as pool:
            with pytest.raises(SolverProblem) as found:
                await pool.ask({"kind": "refuse"})
            (problem,) = found.value.errors
            assert found.value.slug == "invalid-input"
            assert (problem.path, problem.found, problem.allowed) == ("/a", "1", "2")
            assert pool.deaths == 0

    asyncio.run(main())


def test_cancelling_stops_a_child_gently_and_keeps_it():
    async def main() -> None:
        async with pool_of() as pool:
            (before,) = pool.pids
            task = asyncio.create_task(pool.ask({"kind": "wait"}))
            await until(lambda: pool.idle == 0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: pool.idle == 1, 1.0)
            assert pool.pids == (before,)

    asyncio.run(main())


def test_cancelling_kills_a_child_that_does_not_listen_with_its_children():
    async def main() -> None:
        async with pool_of() as pool:
            async with pool.stream({"kind": "family"}) as stream:
                _, item = await anext(stream)
            await until(lambda: not is_alive(item["pid"]), 2.0)
            await until(lambda: pool.idle == 1)
            assert pool.deaths == 1

    asyncio.run(main())


def test_a_child_past_its_deadline_is_killed():
    async def main() -> None:
        async with pool_of() as pool:
            with pytest.raises(SolverProblem) as found:
                await pool.ask({"kind": "deaf"}, SolverLimits(wall_s=0.1))
            assert found.value.reason == "time"
            assert (await pool.ask(echo())).end == {"of": "a"}

    asyncio.run(main())


def test_a_reader_that_is_slow_holds_the_child_back_and_loses_nothing():
    async def main() -> None:
        async with pool_of() as pool:
            async with pool.stream({"kind": "flood", "count": 20_000}) as stream:
                numbers = [(await anext(stream))[1]["number"]]
                await asyncio.sleep(0.3)
                # 20 MB are not here: what the pipe and one buffer hold is all that was written.
                (pid,) = pool.pids
                with open(f"/proc/{pid}/io") as file:
                    written = dict(line.split(": ") for line in file.read().splitlines())["wchar"]
                assert int(written) < 10 * 2**20
                async for _, item in stream:
                    numbers.append(item["number"])
            assert numbers == list(range(20_000))

    asyncio.run(main())


def test_an_answer_that_is_too_long_is_refused_and_its_child_goes_on():
    async def main() -> None:
        async with pool_of(most_items=10) as pool:
            with pytest.raises(SolverProblem, match="more than 10"):
                await pool.ask({"kind": "flood", "count": 11})
            assert (await pool.ask(echo())).end == {"of": "a"}

    asyncio.run(main())


def test_closing_ends_children_and_whoever_waits():
    async def main() -> None:
        pool = SolverPool(PoolSettings(children=2), [sys.executable, "-c", CHILD])
        await pool.start()
        pids = pool.pids
        busy = [asyncio.create_task(pool.ask({"kind": "deaf"})) for _ in range(2)]
        await until(lambda: pool.idle == 0)
        waiting = asyncio.create_task(pool.ask(echo()))
        await until(lambda: pool.waiting == 1)
        await pool.close()
        for task in (*busy, waiting):
            with pytest.raises(SolverProblem):
                await task
        assert not any(map(is_alive, pids))
        with pytest.raises(SolverProblem, match="stopping"):
            await pool.ask(echo())

    asyncio.run(main())


def test_children_that_do_not_start_are_said():
    async def main() -> None:
        pool = SolverPool(PoolSettings(children=1), [sys.executable, "-c", "raise SystemExit(3)"])
        with pytest.raises(SolverProblem) as found:
            await pool.start()
        assert found.value.reason == "start"

    asyncio.run(main())


def test_children_see_no_secrets_of_the_service(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NESTMAP_STORE", "postgresql://user:secret@host/db")

    async def main() -> None:
        async with pool_of() as pool, contextlib.AsyncExitStack():
            with open(f"/proc/{pool.pids[0]}/environ") as file:
                assert "secret" not in file.read()

    asyncio.run(main())
