"""Warm solver children behind a bounded queue: :class:`SolverPool`.

Nothing here imports the solver. Children are started as ``python -m nestmap.tasks``; each keeps
the spaces that it has derived, so that a request goes to a child that knows its subject where
one is free. A child that dies costs its request a typed error and is replaced at once.

Children go round between those who ask: of all that wait the one who holds fewest is next, nobody
holds more than ``children``, and who holds none while others hold all gets one that is started for
that, so that no patience of one user is another's delay.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from api.solver_child import ChildGoneError, SolverChild
from api.solver_problems import SolverLimits, SolverProblem, own_queue_full, pool_problem

__all__ = ["Answer", "PoolSettings", "SolverLimits", "SolverPool", "SolverProblem", "SolverStream"]

#: What decides which space a request is about.
_AFFINITY = ("subject", "device", "mode", "variant", "run_id")
_START_ATTEMPTS = 3
_START_AGAIN_S = 0.5
_SEND_ATTEMPTS = 3
_POLL_S = 0.01
#: So long somebody without a child waits for one of others' before one more is started.
_PATIENCE_S = 0.5
_ROOM_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """``children`` processes, and up to ``most_extra`` while somebody without one waits; at most
    ``most_waiting`` requests wait, ``most_waiting_each`` of one asker, each at most ``wait_s``.

    ``most_items`` bounds what :meth:`SolverPool.ask` collects; a stream has no such bound.
    """

    children: int = 2
    most_extra: int = 4
    most_waiting: int = 64
    most_waiting_each: int = 16
    wait_s: float = 30.0
    most_items: int = 10_000
    limits: SolverLimits = field(default_factory=SolverLimits)


@dataclass(frozen=True, slots=True)
class Answer:
    """The items of a request and what its end says."""

    items: list[dict[str, Any]]
    end: dict[str, Any]


@dataclass(slots=True)
class _Waiting:
    """A request without a child."""

    affinity: str
    who: str
    child: asyncio.Future[SolverChild] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class SolverStream(AsyncIterator[tuple[str, dict[str, Any]]]):
    """``("item", …)`` and ``("progress", …)`` of a request as they come; then ``end`` is set.

    Read it inside :meth:`SolverPool.stream`. Not reading makes the child wait.
    """

    def __init__(self, child: SolverChild) -> None:
        self._child = child
        self.end: dict[str, Any] | None = None
        self.over = False

    async def __anext__(self) -> tuple[str, dict[str, Any]]:
        if self.over:
            raise StopAsyncIteration
        try:
            kind, value = await self._child.receive()
        except SolverProblem:
            self.over = True
            raise
        if kind == "end":
            self.end = value
            self.over = True
            raise StopAsyncIteration
        return kind, value


class SolverPool:
    """Some children, and the requests that wait for one. An async context manager.

    It belongs to one event loop. Requests and replies are those of docs/solver-workers.md;
    ``id`` and ``limits`` of a request are the pool's.
    """

    def __init__(
        self, settings: PoolSettings = PoolSettings(), command: list[str] | None = None
    ) -> None:
        self._settings = settings
        self._command = command
        self._idle: list[SolverChild] = []
        self._all: set[SolverChild] = set()
        #: Those of ``_all`` that were told to leave and are not replaced.
        self._leaving: set[SolverChild] = set()
        self._waiting: list[_Waiting] = []
        #: How many children work for whom.
        self._held: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._number = 0
        self._starting = 0
        self._closed = False
        self._broken: SolverProblem | None = None
        self.deaths = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Start all children and wait until they are ready; SolverProblem if they are not."""
        for _ in range(self._settings.children):
            self._spawn()
        while self._starting:
            await asyncio.sleep(_POLL_S)
        if self._broken is not None and not self._all:
            problem = self._broken
            await self.close()
            raise problem

    async def close(self) -> None:
        """Refuse what waits, stop what runs, end every child."""
        self._closed = True
        self._refuse_waiting(pool_problem("closed", "the service is stopping"))
        idle, self._idle = self._idle, []
        await asyncio.gather(*(child.close() for child in idle))
        await asyncio.gather(*(child.kill() for child in list(self._all)))
        while self._tasks:
            await asyncio.gather(*list(self._tasks), return_exceptions=True)

    @property
    def idle(self) -> int:
        """Children that wait for a request."""
        return len(self._idle)

    @property
    def waiting(self) -> int:
        """Requests that wait for a child."""
        return len(self._waiting)

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes of all children."""
        return tuple(child.pid for child in self._all)

    async def ask(
        self,
        request: Mapping[str, Any],
        limits: SolverLimits | None = None,
        progress: Callable[[dict[str, Any]], None] | None = None,
        who: str = "",
    ) -> Answer:
        """All items of a request and its end. SolverProblem where there is no answer.

        ``who`` asks: children go round between different ones. Cancelling the task stops the
        child's work within a second.
        """
        items: list[dict[str, Any]] = []
        async with self.stream(request, limits, who) as stream:
            async for kind, value in stream:
                if kind == "progress":
                    if progress is not None:
                        progress(value)
                    continue
                if len(items) >= self._settings.most_items:
                    raise SolverProblem(
                        "too-complex", f"the answer has more than {self._settings.most_items} items"
                    )
                items.append(value)
            return Answer(items, stream.end or {})

    async def ask_when_free(
        self, request: Mapping[str, Any], limits: SolverLimits | None = None, who: str = ""
    ) -> Answer:
        """As :meth:`ask`, however long there is no room for it."""
        while True:
            try:
                return await self.ask(request, limits, who=who)
            except SolverProblem as problem:
                if problem.reason != "full":
                    raise
                await asyncio.sleep(_ROOM_AGAIN_S)

    @contextlib.asynccontextmanager
    async def stream(
        self, request: Mapping[str, Any], limits: SolverLimits | None = None, who: str = ""
    ) -> AsyncIterator[SolverStream]:
        """The replies to a request one by one; leaving the context early stops the work."""
        child = await self._begun(request, limits or self._settings.limits, who)
        stream = SolverStream(child)
        try:
            yield stream
        finally:
            self._give_back(child, stream.over, who)

    async def _begun(
        self, request: Mapping[str, Any], limits: SolverLimits, who: str
    ) -> SolverChild:
        """A child that has got the request."""
        affinity = affinity_of(request)
        for _ in range(_SEND_ATTEMPTS):
            child = await self._take(affinity, who)
            self._number += 1
            try:
                await child.send(self._number, request, limits, affinity)
                return child
            except ChildGoneError:
                self._give_back(child, True, who)
            except SolverProblem:
                self._give_back(child, True, who)
                raise
            except BaseException:
                self._give_back(child, False, who)
                raise
        raise pool_problem("start", "solver processes end before they take a request")

    async def _take(self, affinity: str, who: str) -> SolverChild:
        """A free child, at best one that knows the subject."""
        if self._closed:
            raise pool_problem("closed", "the service is stopping")
        if self._broken is not None:
            self._spawn()
        if self._idle and self._may_hold_more(who):
            # Whoever waits beside an idle child holds all that one asker may.
            self._held[who] += 1
            return self._pick(affinity)
        if sum(waiting.who == who for waiting in self._waiting) >= self._settings.most_waiting_each:
            raise own_queue_full(self._settings.most_waiting_each)
        if len(self._waiting) >= self._settings.most_waiting:
            raise pool_problem("full", "every solver process is busy and the queue is full")
        waiting = _Waiting(affinity, who)
        self._waiting.append(waiting)
        asyncio.get_running_loop().call_later(_PATIENCE_S, self._start_extra)
        try:
            async with asyncio.timeout(self._settings.wait_s):
                return await waiting.child
        except TimeoutError:
            raise self._gone(waiting, "no solver process became free in time") from None
        except asyncio.CancelledError:
            self._gone(waiting, "")
            raise

    def _gone(self, waiting: _Waiting, message: str) -> SolverProblem:
        """Forget a request that waits no longer; a child that it got meanwhile is free."""
        with contextlib.suppress(ValueError):
            self._waiting.remove(waiting)
        future = waiting.child
        if future.done() and not future.cancelled() and future.exception() is None:
            self._let_go(waiting.who)
            self._offer(future.result())
        return pool_problem("full", message)

    def _may_hold_more(self, who: str) -> bool:
        return self._held[who] < self._settings.children

    def _let_go(self, who: str) -> None:
        self._held[who] -= 1
        if not self._held[who]:
            del self._held[who]

    def _pick(self, affinity: str) -> SolverChild:
        # Without one that knows the subject, the one that would forget least.
        chosen = min(self._idle, key=lambda child: (not child.knows(affinity), child.known))
        self._idle.remove(chosen)
        return chosen

    def _offer(self, child: SolverChild) -> None:
        """Let a free child, and others that are free, work for whoever is next."""
        # It may have ended since: then it has been replaced.
        if child.alive:
            self._idle.append(child)
        self._serve()

    def _serve(self) -> None:
        """Give idle children to those who hold fewest, of these to who has waited longest; those
        beyond the usual number leave where one is idle even so."""
        while self._idle:
            may = [one for one in self._waiting if self._may_hold_more(one.who)]
            if not may:
                break
            chosen = min(may, key=lambda one: self._held[one.who])
            self._waiting.remove(chosen)
            if not chosen.child.done():
                self._held[chosen.who] += 1
                chosen.child.set_result(self._pick(chosen.affinity))
        while len(self._idle) > 1 and self._usable > self._settings.children:
            child = min(self._idle, key=lambda one: one.known)
            self._idle.remove(child)
            self._leaving.add(child)
            self._run(child.close())

    @property
    def _usable(self) -> int:
        return len(self._all) - len(self._leaving)

    def _start_extra(self) -> None:
        """One more child where somebody waits who has none."""
        without = {one.who for one in self._waiting if not self._held[one.who]}
        most = self._settings.children + self._settings.most_extra
        if len(without) > self._starting and self._usable + self._starting < most:
            self._start_another()

    def _give_back(self, child: SolverChild, over: bool, who: str) -> None:
        """A request is over, or nobody wants the rest of its answer."""
        self._let_go(who)
        if over and child.alive and not self._closed:
            self._offer(child)
        else:
            self._run(self._stopped(child, over))
            self._serve()  # somebody may hold one more now

    async def _stopped(self, child: SolverChild, over: bool) -> None:
        if child.alive and not over and not self._closed:
            await child.cancel()
        if child.alive and not self._closed:
            self._offer(child)
        else:
            await child.kill()

    async def _replace_at_end(self, child: SolverChild) -> None:
        """However a child ends, another one takes its place."""
        await child.ended()
        await child.kill()
        self._all.discard(child)
        with contextlib.suppress(ValueError):
            self._idle.remove(child)
        if child in self._leaving:
            self._leaving.discard(child)
        elif not self._closed:
            self.deaths += 1
            self._spawn()

    def _spawn(self) -> None:
        if self._usable + self._starting < self._settings.children:
            self._start_another()

    def _start_another(self) -> None:
        self._starting += 1
        self._run(self._start_one())

    async def _start_one(self) -> None:
        """Put one more child to work; after some attempts whoever waits is told."""
        try:
            for attempt in range(_START_ATTEMPTS):
                if attempt:
                    await asyncio.sleep(_START_AGAIN_S * attempt)
                if self._closed:
                    return
                try:
                    child = await SolverChild.start(self._command)
                except (SolverProblem, OSError) as error:
                    self._broken = pool_problem("start", f"no solver process starts: {error}")
                    continue
                self._broken = None
                self._all.add(child)
                self._run(self._replace_at_end(child))
                if self._closed:
                    await child.kill()
                    return
                self._offer(child)
                return
        finally:
            self._starting -= 1
        if not self._all and self._broken is not None:
            self._refuse_waiting(self._broken)

    def _refuse_waiting(self, problem: SolverProblem) -> None:
        refused, self._waiting = self._waiting, []
        for waiting in refused:
            if not waiting.child.done():
                waiting.child.set_exception(problem)

    def _run(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def affinity_of(request: Mapping[str, Any]) -> str:
    """The SHA-256 of what says which space a request is about."""
    about = {name: request.get(name) for name in _AFFINITY}
    text = json.dumps(about, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
