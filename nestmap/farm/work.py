"""One claimed job, from its lease to its end: the same for every kind of worker.

The lease is kept by heartbeats while a solver child works. The result is stored in the
transaction that ends the lease; a worker that dies leaves a lease that runs out, one that comes
too late is told so. What is wrong with a request is its result; what went wrong with a worker is
tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

from api.problems import ProblemError
from api.solver_pool import SolverLimits, SolverPool, SolverProblem
from db.farm.errors import StaleLease
from db.farm.farm import Farm
from db.farm.job_records import Claim, Job, Lease
from db.farm.states import JobKind
from mapper.errors import InputError, LimitError, NestmapError, StoreError
from nestmap.farm.proposing import NotSeenError, propose

LEASE_S = 30.0
#: Most that one proposal may use: it prints kernels and makes a reference output.
PROPOSE_LIMITS = SolverLimits(memory_bytes=4 * 2**30, cpu_s=600.0, wall_s=300.0)
_RETRY_AFTER_S = 1.0
_NOT_SEEN_AGAIN_S = 10.0
#: Reasons of the pool's that say nothing about the request: it is tried again.
_TRANSIENT = frozenset({"crash", "start", "closed"})
_STORE_ATTEMPTS = 5
_STORE_AGAIN_S = 0.2

P = ParamSpec("P")
T = TypeVar("T")


async def work_on(claim: Claim, farm: Farm, pool: SolverPool, lease_s: float = LEASE_S) -> str:
    """Work on a claimed ``propose`` or ``solve`` job until its lease has ended; how that was.

    ``done``, ``failed`` (it may be tried again), ``dropped`` (cancelled, or another has it).
    Cancelling the task gives the job back at once.
    """
    worker = asyncio.create_task(_worked(claim, farm, pool))
    beating = asyncio.create_task(_beat(claim, farm, worker, lease_s))
    try:
        await asyncio.wait([worker])
        if not worker.cancelled():
            return worker.result()
        return "dropped"
    except asyncio.CancelledError:
        worker.cancel()
        await asyncio.wait([worker])
        await _give_back(claim.lease, farm, "the worker is stopping")
        raise
    finally:
        beating.cancel()
        # Not `await beating` with its CancelledError suppressed: one that is meant for this task
        # would be lost with it, and whoever stops the worker would wait for ever.
        await asyncio.wait([beating])


async def _worked(claim: Claim, farm: Farm, pool: SolverPool) -> str:
    job, lease = claim.job, claim.lease
    try:
        if job.kind is JobKind.PROPOSE:
            proposal = await propose(job, farm, pool, PROPOSE_LIMITS)
            await in_thread(farm.results.finish_propose, lease, proposal)
        else:
            result = await _solved(job, pool)
            await in_thread(farm.results.finish_solve, lease, result)
        return "done"
    except StaleLease:
        return "dropped"
    except SolverProblem as problem:
        if problem.reason in _TRANSIENT or problem.slug == "internal":
            return await _give_back(lease, farm, f"{problem.reason or problem.slug}: {problem}")
        why = "; ".join(str(error) for error in problem.errors) or problem.detail
        return await _refused(claim, farm, why)
    except NotSeenError as error:
        return await _give_back(lease, farm, str(error), _NOT_SEEN_AGAIN_S)
    except (InputError, LimitError) as error:
        return await _refused(claim, farm, str(error))
    except NestmapError as error:
        return await _give_back(lease, farm, str(error))


async def _solved(job: Job, pool: SolverPool) -> dict[str, Any]:
    """The result of a ``nestmap/solve-job/1``: the whole answer, or why there is none."""
    limits = SolverLimits(**job.payload.get("limits", {}))
    try:
        answer = await pool.ask_when_free(job.payload["request"], limits, job.principal)
    except SolverProblem as problem:
        if problem.reason in _TRANSIENT:
            raise
        error = ProblemError(problem.slug, problem.detail, problem.errors, **problem.more)
        return {"problem": error.body()}
    return {"items": answer.items, "end": answer.end}


async def _refused(claim: Claim, farm: Farm, why: str) -> str:
    """A request that no attempt can do: its run has failed, for people to read why."""
    if claim.job.run_id is None:
        return await _give_back(claim.lease, farm, why)
    try:
        await in_thread(farm.runs.fail, claim.job.run_id, f"no candidates: {why}")
    except InputError:
        # It has ended meanwhile, and so has its job.
        return "dropped"
    return "failed"


async def _give_back(
    lease: Lease, farm: Farm, why: str, retry_after_s: float = _RETRY_AFTER_S
) -> str:
    try:
        await in_thread(partial(farm.jobs.fail, lease, why, retry_after_s=retry_after_s))
    except (StaleLease, InputError):
        return "dropped"
    return "failed"


async def _beat(claim: Claim, farm: Farm, worker: asyncio.Task[str], lease_s: float) -> None:
    """Keep the lease while the worker works; stop it where nobody wants the result."""
    while True:
        await asyncio.sleep(lease_s / 3)
        try:
            beat = await asyncio.to_thread(
                partial(farm.jobs.heartbeat, claim.lease, lease_s=lease_s, stage="solving")
            )
        except StoreError:
            continue  # the lease may outlast it
        except NestmapError:
            worker.cancel()
            return
        if beat.cancel:
            worker.cancel()
            return


async def in_thread(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """The function's value from a thread. A store that cannot be reached is asked again for a
    second; every function here may be called twice."""
    for attempt in range(_STORE_ATTEMPTS - 1):
        try:
            return await asyncio.to_thread(function, *arguments, **named)
        except StoreError:
            await asyncio.sleep(_STORE_AGAIN_S * (attempt + 1))
    return await asyncio.to_thread(function, *arguments, **named)
