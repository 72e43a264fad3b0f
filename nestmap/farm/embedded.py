"""Solver work beside the API, in its own process: the embedded default, without a broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from api.solver_pool import SolverPool
from db.farm.farm import Farm
from db.farm.job_records import Claim
from db.farm.states import JobKind
from mapper.errors import NestmapError
from nestmap.farm.work import LEASE_S, work_on

WORK = (JobKind.PROPOSE, JobKind.SOLVE)
#: How often the queue is looked at when there is nothing to do: two reads of an index.
_POLL_S = 0.1
_AGAIN_S = 1.0
OWNER = "embedded"

#: Told of each job that has ended, with how; and of trouble with the store, as a text.
Told = Callable[[str, str], None]


def _silent(what: str, how: str) -> None:
    del what, how


class EmbeddedRunner:
    """Claims jobs of these kinds and works on them, ``at_once`` of them at a time, of each owner
    one if ``one_each``.

    Start it with :meth:`run` as a task of the loop that the pool belongs to, and cancel that
    task to stop: jobs under way are given back.
    """

    def __init__(
        self,
        farm: Farm,
        pool: SolverPool,
        *,
        kinds: tuple[JobKind, ...] = WORK,
        at_once: int = 1,
        one_each: bool = False,
        lease_s: float = LEASE_S,
        told: Told = _silent,
    ) -> None:
        self._farm = farm
        self._pool = pool
        self._kinds = kinds
        self._at_once = at_once
        self._one_each = one_each
        self._lease_s = lease_s
        self._told = told
        self._bell = asyncio.Event()

    def ring(self, waiting: object = None) -> None:
        """There is work: do not wait for the next look at the queue. From the loop only."""
        del waiting  # the queue knows
        self._bell.set()

    async def run(self) -> None:
        """Work until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._at_once):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            try:
                claim = await self._claim()
            except NestmapError as error:
                self._told("store", str(error))
                await asyncio.sleep(_AGAIN_S)
                continue
            if claim is None:
                await self._wait()
                continue
            try:
                how = await work_on(claim, self._farm, self._pool, self._lease_s)
            except NestmapError as error:
                # The lease runs out, and somebody else takes the job.
                how = f"not ended: {error}"
            self._told(claim.job.id, how)

    async def _claim(self) -> Claim | None:
        claiming = asyncio.ensure_future(
            asyncio.to_thread(
                lambda: self._farm.jobs.claim_work(
                    self._kinds, OWNER, lease_s=self._lease_s, one_each=self._one_each
                )
            )
        )
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            # The thread goes on: what it claims must not wait for its lease to run out.
            with contextlib.suppress(NestmapError):
                claim = await claiming
                if claim is not None:
                    lease = claim.lease
                    await asyncio.to_thread(self._farm.jobs.fail, lease, "the worker is stopping")
            raise

    async def _wait(self) -> None:
        self._bell.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_POLL_S):
                await self._bell.wait()
