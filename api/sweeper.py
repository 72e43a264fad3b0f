"""What goes on beside requests: leases that ran out end, and bells ring for what waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any

from api.bells import Bells
from api.database import Database
from api.observing import Metrics
from api.settings import Settings
from db.farm.farm import Farm
from db.farm.retention import RetentionPolicy
from db.farm.states import JobKind, JobState
from mapper.errors import NestmapError

#: Called with jobs that wait for a solver worker; a hint that may be lost or doubled.
RingWork = Callable[[Sequence[tuple[str, JobKind]]], None]
#: A bell that nobody has answered is rung again after this time.
RING_AGAIN_S = 30.0
#: How often the queue is looked at for boards while notices come of all that is new in it.
_LOOK_S = 1.0
_GAUGES_S = 5.0
_PRUNE_S = 3_600.0
_PRESENCE_S = 1.0
_GREED_S = 30.0
_OPEN = (JobState.QUEUED, JobState.LEASED)


class Sweeper:
    """The loops of one application, between :meth:`start` and :meth:`close`.

    Correctness needs none of them: they end leases early that a claim would end late, and wake
    those who would look again by themselves.
    """

    def __init__(
        self,
        farm: Farm,
        database: Database,
        bells: Bells,
        metrics: Metrics,
        settings: Settings,
        logger: Any,
        ring: RingWork | None,
    ) -> None:
        self._farm = farm
        self._database = database
        self._bells = bells
        self._metrics = metrics
        self._settings = settings
        self._logger = logger
        self._ring = ring
        self._work = asyncio.Event()
        self._notices = farm.board_notices(lambda board_id: bells.ring([board_id]))
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin; in the loop that serves requests."""
        self._notices.start()
        loops = (
            self._every(self._settings.sweep_s, self._expire),
            self._look_for_boards(),
            self._every(_GAUGES_S, self._count),
            self._every(_PRUNE_S, self._prune),
            self._every(_GREED_S, self._end_greedy),
            self._every(_PRESENCE_S, self._write_presence),
            self._ring_solvers(),
        )
        self._tasks = [asyncio.create_task(loop) for loop in loops]

    async def close(self) -> None:
        """Stop every loop."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        with contextlib.suppress(NestmapError):  # a second of who was there
            await self._write_presence()
        await asyncio.to_thread(self._notices.close)

    def ring_work(self) -> None:
        """Something may wait for a solver worker: look now, not at the next turn."""
        self._work.set()

    async def _every(self, seconds: float, step: Callable[[], Any]) -> None:
        while True:
            await self._guarded(step)
            await asyncio.sleep(seconds)

    async def _guarded(self, step: Callable[[], Any]) -> None:
        """A database that is away for a moment stops no loop."""
        try:
            await step()
        except NestmapError as error:
            self._logger.error("sweeper", step=step.__name__, error=str(error)[:500])
            await asyncio.sleep(1.0)

    async def _expire(self) -> None:
        swept = await self._database(self._farm.jobs.expire)
        if swept.expired:
            self._metrics.expired.inc(len(swept.expired))
            self.ring_work()
        self._bells.ring(swept.ended_runs)

    async def _look_for_boards(self) -> None:
        """Often, or once in a while where every new job is told of by a notice: what becomes
        claimable by time alone waits for that look."""
        while True:
            await self._guarded(self._wake_boards)
            often_s = self._settings.lease_poll_s
            await asyncio.sleep(max(often_s, _LOOK_S) if self._notices.listening else often_s)

    async def _wake_boards(self) -> None:
        """One query for all boards that wait here, whatever their number and that of others."""
        listening = [name for name in self._bells.names if name.startswith("dev_")]
        if listening:
            self._bells.ring(await self._database(self._farm.jobs.waiting_boards, listening))

    async def _write_presence(self) -> None:
        await self._database(self._farm.presence.write)

    async def _count(self) -> None:
        counts = await self._database(self._farm.jobs.counts)
        for kind in JobKind:
            for state in _OPEN:
                number = counts.get((kind, state), 0)
                self._metrics.jobs.labels(kind.value, state.value).set(number)

    async def _end_greedy(self) -> None:
        """Open runs end where their owner's candidates, or bytes, are too many."""
        most = self._settings.max_candidates_each, self._settings.most_stored_bytes_each
        self._bells.ring(await self._database(self._farm.runs.end_beyond, *most))

    async def _prune(self) -> None:
        """Drop what the retention policy no longer keeps, in rounds that lock little."""
        policy = RetentionPolicy(programs_days=self._settings.unused_programs_days)
        while any(astuple(await self._database(self._farm.retention.prune, policy))):
            await asyncio.sleep(0.1)

    async def _ring_solvers(self) -> None:
        while True:
            self._work.clear()
            if self._ring is not None:
                await self._guarded(self._ring_now)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.sweep_s):
                    await self._work.wait()

    async def _ring_now(self) -> None:
        waiting = await self._database(self._farm.jobs.unrung, RING_AGAIN_S)
        if waiting and self._ring is not None:
            self._ring(waiting)
