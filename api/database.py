"""Calls that block, away from the event loop, in turns between those who ask."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import anyio

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks: a token's id or an address, or nobody: the service itself. ``first``: it is
    before people, as boards are, whose leases run out while they wait."""

    who: str = ""
    first: bool = True


_ITSELF = Asker()
#: Who the request under way is from; tasks that it starts inherit it.
ASKER: ContextVar[Asker] = ContextVar("ASKER", default=_ITSELF)


class Database:
    """Runs what talks to the database in threads: as many as there are connections for.

    Of one asker a quarter of them is at work at once, of all that come ``first`` all but one, of
    all others all but a quarter: these go round, and what is asked for next waits for nobody who
    has asked a thousand times. They are threads of a plain pool: anyio's cost a busy service a
    tenth of its time more.
    """

    def __init__(self, threads: int) -> None:
        self._most = threads
        self._most_each = max(1, threads // 4)
        #: By whether they come first.
        self._most_of = {True: max(1, threads - 1), False: max(1, threads - threads // 4)}
        self._threads: ThreadPoolExecutor | None = None
        self._at_work: Counter[Asker] = Counter()
        self._at_work_of: Counter[bool] = Counter()
        #: What waits of each asker; who is next comes first.
        self._waiting: dict[bool, OrderedDict[Asker, deque[asyncio.Future[None]]]] = {
            True: OrderedDict(),
            False: OrderedDict(),
        }

    async def __call__(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """The function's value. A request that is cancelled waits for its thread's end, so
        that no transaction is left behind."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._most, "database")
        asker = ASKER.get()
        if asker in self._waiting[asker.first] or not self._may_work(asker):
            await self._turn(asker)
        else:
            self._begin(asker)
        work = self._threads.submit(function, *arguments, **named)
        value = asyncio.wrap_future(work)
        value.add_done_callback(lambda _: self._end(asker))
        try:
            return await asyncio.shield(value)
        except asyncio.CancelledError:
            if not work.cancel():
                with anyio.CancelScope(shield=True):
                    await asyncio.wait([value])
            raise

    def close(self) -> None:
        """End the threads, when nobody calls any more."""
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None

    async def _turn(self, asker: Asker) -> None:
        """Wait until it may work; then it is counted."""
        waiting = self._waiting[asker.first]
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.setdefault(asker, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._end(asker)
            elif asker in waiting:
                own = waiting[asker]
                if turn in own:
                    own.remove(turn)
                if not own:
                    del waiting[asker]
            raise

    def _may_work(self, asker: Asker) -> bool:
        if self._at_work_of.total() >= self._most:
            return False
        if not asker.who:
            return True
        return (
            self._at_work[asker] < self._most_each
            and self._at_work_of[asker.first] < self._most_of[asker.first]
        )

    def _begin(self, asker: Asker) -> None:
        self._at_work[asker] += 1
        self._at_work_of[asker.first] += 1

    def _end(self, asker: Asker) -> None:
        self._at_work[asker] -= 1
        if not self._at_work[asker]:
            del self._at_work[asker]
        self._at_work_of[asker.first] -= 1
        while self._one_more():
            pass

    def _one_more(self) -> bool:
        """Let whoever is next begin; whether somebody could."""
        for first in (True, False):
            waiting = self._waiting[first]
            asker = next((one for one in waiting if self._may_work(one)), None)
            if asker is None:
                continue
            own = waiting[asker]
            turn = own.popleft()
            if own:
                waiting.move_to_end(asker)
            else:
                del waiting[asker]
            if not turn.done():
                self._begin(asker)
                turn.set_result(None)
            return True
        return False
