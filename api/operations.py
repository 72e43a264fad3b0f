"""Long work: answered at once if it is done in time, else an operation that can be fetched.

An operation is a ``solve`` job. The child that began the work goes on with it under a lease of
its own, so that nothing is computed twice; if this process dies, the lease runs out and any
solver worker takes the job. Its payload is ``{"schema": "nestmap/solve-job/1", "request": …,
"limits": …}``, its result ``{"items": […], "end": {…}}`` or ``{"problem": {…}}``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Header, Request
from starlette.responses import JSONResponse, Response

from api.auth import Principal
from api.database import Database
from api.preference import preferred_wait_s
from api.problems import ProblemError
from api.schemas.operations import Operation
from api.settings import Settings
from api.solver_pool import Answer, SolverLimits, SolverProblem
from api.solving import Solving, as_problem
from db.farm.errors import StaleLease
from db.farm.farm import Farm
from db.farm.job_records import Job, Lease, NewJob
from db.farm.states import JobKind, JobState
from mapper.errors import LimitError, StoreError

SOLVE_JOB = "nestmap/solve-job/1"
OWNER = "api"
LEASE_S = 30.0

#: What each kind of question answers, from the items and the end of the child's reply.
SHAPES: dict[str, Callable[[list[Any], dict[str, Any]], dict[str, Any]]] = {
    "waterfall": lambda items, end: {"steps": items, **end},
    "count": lambda items, end: end,
    "sample": lambda items, end: {"items": items, **end},
    "best": lambda items, end: {"items": items, **end},
    "check": lambda items, end: end,
    "explain": lambda items, end: end,
}


async def wait_of(
    request: Request,
    prefer: Annotated[
        str | None,
        Header(description="`wait=N`: seconds to wait before a 202", max_length=200),
    ] = None,
) -> float:
    """The seconds that a request waits for its answer."""
    settings: Settings = request.app.state.services.settings
    return preferred_wait_s(prefer, settings.default_wait_s, settings.max_wait_s)


Preference = Annotated[float, Depends(wait_of)]


def operation_of(job: Job) -> Operation:
    """A ``solve`` job as a client sees it."""
    kind = str(job.payload["request"]["kind"])
    result: dict[str, Any] | None = None
    problem: dict[str, Any] | None = None
    match job.state:
        case JobState.DONE if isinstance(job.result, dict) and "problem" in job.result:
            state, problem = "failed", job.result["problem"]
        case JobState.DONE:
            state, result = "done", SHAPES[kind](job.result["items"], job.result["end"])
        case JobState.FAILED:
            detail = "no solver process came to an end with it"
            state, problem = "failed", ProblemError("solver-limit", detail).body()
        case JobState.CANCELLED:
            state = "cancelled"
        case JobState.LEASED:
            state = "running"
        case JobState.QUEUED:
            state = "queued"
    return Operation.model_validate(
        {"id": job.id, "kind": kind, "state": state, "created_at": job.created_at,
         "ended_at": job.ended_at, "result": result, "problem": problem}
    )  # fmt: skip


class Operations:
    """The operations that this process works on."""

    def __init__(
        self, farm: Farm, solving: Solving, database: Database, most_bytes_each: int, logger: Any
    ) -> None:
        self._farm = farm
        self._most_bytes_each = most_bytes_each
        self._solving = solving
        self._database = database
        self._logger = logger
        self._tasks: set[asyncio.Task[None]] = set()
        self._working: dict[str, asyncio.Future[Answer]] = {}

    async def answer(
        self,
        principal: Principal,
        wait_s: float,
        request: dict[str, Any],
        time_limit_s: float | None,
    ) -> dict[str, Any] | Response:
        """The answer, or a 202 with the operation that goes on with it.

        Raises SolverProblem where there is none. A client that goes away before either stops
        the work.
        """
        limits = self._solving.limits(time_limit_s)
        work = asyncio.ensure_future(self._solving.ask(request, limits))
        try:
            done, _ = await asyncio.wait([work], timeout=wait_s)
            if done:
                answer = work.result()
                return SHAPES[request["kind"]](answer.items, answer.end)
            job = await self._take_over(work, request, limits, principal)
        except BaseException:
            work.cancel()
            raise
        body = operation_of(job).model_dump(mode="json")
        return JSONResponse(body, 202, {"Location": f"/v1/operations/{job.id}", "Retry-After": "1"})

    async def _take_over(
        self,
        work: asyncio.Future[Answer],
        request: dict[str, Any],
        limits: SolverLimits,
        principal: Principal,
    ) -> Job:
        """Make a job of work under way, claim it for this process, and go on with it."""
        payload = {"schema": SOLVE_JOB, "request": request, "limits": limits.to_json()}
        jobs, database = self._farm.jobs, self._database
        new = NewJob(payload, principal.id, most_bytes=self._most_bytes_each)
        accepted = await database(jobs.enqueue, new)
        job = accepted.value
        claim = await database(
            jobs.claim_work, (JobKind.SOLVE,), OWNER, lease_s=LEASE_S, job_id=job.id
        )
        if claim is None:  # a solver worker was quicker: it does it anew
            work.cancel()
            return job
        task = asyncio.create_task(self._finish(work, claim.lease))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return claim.job

    async def cancel(self, job_id: str) -> Job:
        """Cancel an operation; the child stops at the next heartbeat at the latest."""
        job = await self._database(self._farm.jobs.cancel, job_id)
        work = self._working.get(job_id)
        if work is not None:
            work.cancel()
        return job

    async def close(self) -> None:
        """Stop: what is not done is taken over by others when its lease has run out."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _finish(self, work: asyncio.Future[Answer], lease: Lease) -> None:
        """Keep the lease while the work goes on, then store what came of it."""
        self._working[lease.job_id] = work
        try:
            while not work.done():
                await asyncio.wait([work], timeout=LEASE_S / 3)
                if not work.done():
                    await self._database(
                        self._farm.jobs.heartbeat, lease, lease_s=LEASE_S, stage="solving"
                    )
            if work.cancelled():
                return
            await self._database(self._farm.results.finish_solve, lease, _result_of(work))
        except (StaleLease, LimitError, StoreError) as error:
            # Somebody else ends the job: the lease is theirs, or will run out.
            self._logger.warning("operation", job=lease.job_id, error=str(error)[:500])
        finally:
            work.cancel()
            del self._working[lease.job_id]


def _result_of(work: asyncio.Future[Answer]) -> dict[str, Any]:
    match work.exception():
        case None:
            answer = work.result()
            return {"items": answer.items, "end": answer.end}
        case SolverProblem() as error:
            return {"problem": as_problem(error).body()}
        case _:
            return {"problem": ProblemError("internal").body()}
