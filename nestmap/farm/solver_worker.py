"""A solver worker of a farm: hears bells, claims jobs, works on them in limited children.

Celery's own processes hear the bells; each keeps one solver child warm. While a process works on a
job, it looks for jobs of owners who have none under way anywhere, and works on two of them beside
it: what takes minutes is no delay to others, however few processes there are. A process that dies
takes its bell back to the queue, and its leases run out.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import socket
import time
from functools import partial
from typing import Any

from celery import Celery, signals

from api.solver_pool import PoolSettings, SolverLimits, SolverPool, SolverProblem
from db.farm.farm import Farm
from db.farm.job_records import Claim
from mapper.errors import NestmapError
from nestmap.farm.celery_app import QUEUE, TASK, celery_app, declare_queues
from nestmap.farm.embedded import WORK
from nestmap.farm.work import LEASE_S, work_on

_MAX_ID = 64
#: Jobs that one process works on at once: that of its bell, and those of others beside it.
_AT_ONCE = 3
#: How often it looks for those.
_LOOK_S = 1.0
#: So long after its bell it begins no more of them: a broker takes a bell back that nobody has
#: answered within half an hour.
_MOST_OF_A_BELL_S = 1_200.0

logger = logging.getLogger(__name__)


class WorkerProcess:
    """What one of Celery's processes keeps between bells."""

    def __init__(self, store: str, limits: SolverLimits, lease_s: float) -> None:
        self._store = store
        self._limits = limits
        self._lease_s = lease_s
        self._runner: asyncio.Runner | None = None
        self._farm: Farm | None = None
        self._pool: SolverPool | None = None
        self._owner = f"{socket.gethostname()}/{os.getpid()}"
        #: Shared with the process that hears signals, from which the others are forked.
        self._stopping = multiprocessing.Event()

    def stop(self) -> None:
        """Begin no more jobs beside those that are under way, in all processes."""
        self._stopping.set()

    def work(self) -> str:
        """At a bell: claim what is next, whatever it rang for, and work on it and on others' jobs
        beside it until all have ended; ``none`` where others have it all."""
        if self._runner is None:
            self._runner = asyncio.Runner()
            self._owner = f"{socket.gethostname()}/{os.getpid()}"
        return self._runner.run(self._work())

    def close(self) -> None:
        """End the child, and close the store."""
        if self._runner is not None:
            if self._pool is not None:
                self._runner.run(self._pool.close())
            self._runner.close()
        if self._farm is not None:
            self._farm.close()
        self._runner = self._pool = self._farm = None

    async def _work(self) -> str:
        # Opened here and not before: connections do not survive a fork.
        if self._farm is None:
            self._farm = await asyncio.to_thread(partial(Farm.open, self._store, connections=4))
        if self._pool is None:
            settings = PoolSettings(children=1, most_extra=_AT_ONCE - 1, limits=self._limits)
            pool = SolverPool(settings)
            await pool.start()
            self._pool = pool
        farm, pool, lease_s = self._farm, self._pool, self._lease_s
        claim = await self._claim(farm, one_each=False)
        if claim is None:
            return "none"
        first = asyncio.create_task(work_on(claim, farm, pool, lease_s))
        end = time.monotonic() + _MOST_OF_A_BELL_S
        all_of_it, under_way = [first], {first}
        while under_way:
            _, under_way = await asyncio.wait(
                under_way, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED
            )
            while 0 < len(under_way) < _AT_ONCE and not self._begins_no_more(end):
                try:
                    claim = await self._claim(farm, one_each=True)
                except NestmapError as error:
                    logger.warning("the store was not looked at: %s", error)
                    break
                if claim is None:
                    break
                beside = asyncio.create_task(work_on(claim, farm, pool, lease_s))
                all_of_it.append(beside)
                under_way.add(beside)
        return (await asyncio.gather(*all_of_it))[0]

    async def _claim(self, farm: Farm, *, one_each: bool) -> Claim | None:
        return await asyncio.to_thread(
            partial(
                farm.jobs.claim_work, WORK, self._owner, lease_s=self._lease_s, one_each=one_each
            )
        )

    def _begins_no_more(self, end: float) -> bool:
        return self._stopping.is_set() or time.monotonic() >= end


def worker_app(
    broker_url: str, store: str, limits: SolverLimits | None = None, lease_s: float = LEASE_S
) -> Celery:
    """The application with its one task, for a worker on this host."""
    app = celery_app(broker_url)
    process = WorkerProcess(store, limits or SolverLimits(), lease_s)

    def work(job_id: str) -> None:
        if not isinstance(job_id, str) or len(job_id) > _MAX_ID:
            return  # no bell of ours
        try:
            process.work()
        except (NestmapError, SolverProblem) as error:
            # The job waits in the store, or its lease runs out: the sweeper rings again.
            logger.warning("%s was not worked on: %s", job_id, error)

    app.task(work, name=TASK, ignore_result=True)

    @signals.worker_shutting_down.connect(weak=False)
    def _stop(**more: Any) -> None:
        del more
        process.stop()

    @signals.worker_process_shutdown.connect(weak=False)
    def _close(**more: Any) -> None:
        del more
        process.close()

    return app


def run_worker(
    broker_url: str,
    store: str,
    *,
    processes: int,
    limits: SolverLimits,
    log_level: str = "WARNING",
    lease_s: float = LEASE_S,
) -> None:
    """Work until a signal comes: SIGTERM and SIGINT let jobs under way end first."""
    app = worker_app(broker_url, store, limits, lease_s)
    declare_queues(app)
    app.worker_main(
        [
            "worker", "--pool=prefork", f"--concurrency={processes}", f"--queues={QUEUE}",
            "--without-gossip", "--without-mingle", "--without-heartbeat",
            f"--loglevel={log_level}", f"--hostname=solver-{os.getpid()}@%h",
        ]
    )  # fmt: skip
