"""Whoever asks the database a thousand times delays nobody: boards come first, others go round."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from api.database import ASKER, Asker, Database
from api.settings import Settings
from db.transactions import Transactions
from tests.unit.api.conftest import Service


class Asked:
    """Tasks that ask as somebody, and what was done in which order."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.done: list[str] = []
        self.gate = threading.Event()
        self.wait: Callable[[], object] = lambda: self.gate.wait(10)
        self.tasks: list[asyncio.Task[None]] = []

    def ask(self, who: str, count: int = 1, *, first: bool = False) -> None:
        for _ in range(count):
            self.tasks.append(asyncio.create_task(self._one(Asker(who, first))))

    async def _one(self, asker: Asker) -> None:
        ASKER.set(asker)
        await self.database(self._work, asker.who)

    def _work(self, who: str) -> None:
        self.wait()
        self.done.append(who)

    async def end(self) -> None:
        self.gate.set()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def test_a_thousand_calls_of_one_are_no_queue_for_others() -> None:
    async def main() -> None:
        database = Database(8)
        hostile = Asked(database)
        hostile.ask("hostile", 1000)
        await asyncio.sleep(0.05)
        others = Asked(database)
        others.gate.set()
        others.ask("honest", 3)
        others.ask("board", 3, first=True)
        await asyncio.wait_for(asyncio.gather(*others.tasks), 5)
        assert sorted(others.done) == ["board"] * 3 + ["honest"] * 3
        assert not hostile.done
        await hostile.end()
        assert len(hostile.done) == 1000
        database.close()

    asyncio.run(main())


def test_where_every_thread_is_taken_whoever_comes_is_next_after_one_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[str] = []
    begin = Database._begin

    def noted(self: Database, asker: Asker) -> None:
        begun.append(asker.who)
        begin(self, asker)

    monkeypatch.setattr(Database, "_begin", noted)
    one_more = threading.Semaphore(0)

    async def main() -> None:
        database = Database(4)
        asked = Asked(database)
        asked.wait = lambda: one_more.acquire(timeout=10)
        for who in ("a", "b", "c"):
            asked.ask(who, 20)
        await asyncio.sleep(0.05)
        asked.ask("honest")
        await asyncio.sleep(0.05)
        assert begun == ["a", "b", "c"]
        # One thread at a time is free, whichever it is.
        for number in range(1, 5):
            one_more.release()
            while len(begun) < 3 + number:
                await asyncio.sleep(0.001)
        assert "honest" in begun[3:]
        one_more.release(60)
        await asked.end()
        database.close()

    asyncio.run(main())


def test_however_many_ask_a_board_and_the_service_find_a_thread() -> None:
    async def main() -> None:
        database = Database(4)
        asked = Asked(database)
        for number in range(20):
            asked.ask(f"hostile {number}", 5)
        await asyncio.sleep(0.05)
        free = Asked(database)
        free.gate.set()
        free.ask("board", first=True)
        await asyncio.wait_for(asyncio.gather(*free.tasks), 5)
        await asyncio.wait_for(database(int), 5)
        await asked.end()
        assert len(asked.done) == 100
        database.close()

    asyncio.run(main())


def test_calls_that_are_cancelled_leave_no_place_taken() -> None:
    async def main() -> None:
        database = Database(2)
        asked = Asked(database)
        asked.ask("a", 5)
        asked.ask("b", 5)
        await asyncio.sleep(0.05)
        for task in asked.tasks[2:]:
            task.cancel()
        await asyncio.sleep(0.05)
        await asked.end()
        again = Asked(database)
        again.gate.set()
        again.ask("a", 3)
        again.ask("c", 3)
        await asyncio.wait_for(asyncio.gather(*again.tasks), 5)
        assert not database._at_work and not any(database._waiting.values())
        database.close()

    asyncio.run(main())


def test_wrong_codes_write_nothing_and_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each began as a writer, so that a flood of them held the only place."""
    service = Service(tmp_path, Settings(failed_logins_per_minute=5))
    client = service.client(None)
    good = service.farm.enrolments.create().code

    def enrol(code: str) -> int:
        body = {"code": code, "name": "mine", "agent_version": "0.1.0", "facts": {}}
        return client.post("/v1/enrol", json=body).status_code

    def none(self: Transactions, **more: bool) -> None:
        raise AssertionError("a writer")

    with monkeypatch.context() as patched:
        patched.setattr(Transactions, "write", none)
        wrong = [enrol(good[:-4] + "zzz" + str(number % 10)) for number in range(8)]
    assert wrong == [410] * 5 + [429] * 3
    # The right one is not shut out by its neighbours.
    assert enrol(good) == 201
    service.close()
