"""The lease protocol `nestmap/lease/1`: boards ask for work, keep it, and send what came of it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import Path, Query, Request
from starlette.responses import JSONResponse, Response

from api.auth import Access
from api.bells import heard
from api.outcomes import outcome_of
from api.problems import ProblemError
from api.routing import GuardedRouter
from api.schemas.devices import DeviceDocument
from api.schemas.leases import (
    EnrolAnswer,
    EnrolRequest,
    HealthRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    LeasedJob,
    LeaseRequest,
    ReleaseAnswer,
    ReleaseRequest,
    ResultAnswer,
    ResultRequest,
)
from api.services import PrincipalOf, Services, ServicesOf
from db.farm.boards import AGENT
from db.farm.deadlines import attempt_s
from db.farm.errors import CodeGone, ConflictError
from db.farm.job_records import Claim, Finished, Lease
from mapper.measurement import Outcome, outcome_kind

routes = GuardedRouter("boards")

FIRST_LEASE_S = 10.0
LEASE_S = 30.0

DevicePath = Annotated[str, Path(pattern="^dev_[0-9a-z]{26}$")]
JobPath = Annotated[str, Path(pattern="^job_[0-9a-z]{26}$")]


@routes.post(
    "/v1/enrol", Access.PUBLIC, summary="A board comes in", status=201, problems=(409, 410, 429),
    response_model=EnrolAnswer,
)  # fmt: skip
async def enrol_device(body: EnrolRequest, request: Request, services: ServicesOf) -> EnrolAnswer:
    """A code works once. The token is in this answer and nowhere else. Refusals count as failed
    authentications of the address."""
    try:
        enrolled = await services.database(
            services.farm.enrolments.redeem,
            body.code, name=body.name, agent_version=body.agent_version, facts=body.facts,
        )  # fmt: skip
    except (CodeGone, ConflictError):
        services.authenticator.failed(request.client.host if request.client else "")
        raise
    return EnrolAnswer(device=enrolled.board.id, token=enrolled.token.text)


@routes.post(
    "/v1/devices/{device_id}/lease", Access.OWN_DEVICE, summary="Ask for a job",
    problems=(404, 409), responses={204: {"description": "No job came in the time"}},
    response_model=LeasedJob,
)  # fmt: skip
async def lease_job(
    device_id: DevicePath,
    body: LeaseRequest,
    request: Request,
    services: ServicesOf,
    wait: Annotated[int, Query(ge=0, le=300, description="Seconds to wait for one")] = 0,
) -> Response:
    """Waits until there is one, `wait` seconds at most (the service has a bound of its own).

    The lease is short until the first heartbeat, so that a board which went away while it
    waited loses the job soon.
    """
    request.state.waits = True
    wait_s = min(float(wait), services.settings.max_long_poll_s)
    claim = await _claimed(services, request, device_id, body, wait_s)
    if claim is None:
        return Response(status_code=204)
    services.metrics.leases.inc()
    payload: dict[str, Any] = claim.job.payload
    answer = {
        "job": claim.job.id,
        "attempt": claim.lease.attempt,
        "lease_token": claim.lease.token,
        "lease_s": claim.lease_s,
        "deadline_s": attempt_s(payload),
        "payload": payload,
    }
    return JSONResponse(answer, headers={"Cache-Control": "no-store"})


async def _claimed(
    services: Services, request: Request, device_id: str, body: LeaseRequest, wait_s: float
) -> Claim | None:
    """A claim within the time; None without one, when the board has gone, or at shutdown."""
    farm, loop = services.farm, asyncio.get_running_loop()

    def look(first: bool) -> Claim | None:
        # One visit to a thread for both: at a thousand boards the visits are what costs.
        if first:
            farm.boards.seen(
                device_id, agent_version=body.agent_version, facts=body.facts, health=body.health,
                later=farm.presence,
            )  # fmt: skip
        # Who rings a bell has seen a job.
        return farm.jobs.claim_for_board(
            device_id, lease_s=FIRST_LEASE_S, owner=body.agent_version, told=not first
        )

    deadline = loop.time() + wait_s
    gone = asyncio.create_task(_gone(request))
    try:
        with (
            services.bells.listening(device_id) as bell,
            services.metrics.waiting_boards.track_inprogress(),
        ):
            gone.add_done_callback(lambda _: bell.set())
            first = True
            while not gone.done():
                bell.clear()
                claim = await services.database(look, first)
                first = False
                if claim is not None:
                    return await _unless_gone(services, claim, gone)
                left_s = deadline - loop.time()
                if left_s <= 0 or services.stopping or not await heard(bell, left_s):
                    return None
        return None
    finally:
        gone.cancel()


async def _unless_gone(services: Services, claim: Claim, gone: asyncio.Task[None]) -> Claim | None:
    """The claim; given back at once if nobody is there to take it."""
    if not gone.done():
        return claim
    await services.database(
        services.farm.jobs.fail, claim.lease, "the board went away before it got the job",
        retry_after_s=0.0,
    )  # fmt: skip
    return None


async def _gone(request: Request) -> None:
    """Returns when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


@routes.post(
    "/v1/jobs/{job_id}/heartbeat", Access.OWN_DEVICE, summary="Keep a lease",
    problems=(404, 409), response_model=HeartbeatAnswer,
)  # fmt: skip
async def keep_lease(
    job_id: JobPath, body: HeartbeatRequest, services: ServicesOf, principal: PrincipalOf
) -> HeartbeatAnswer:
    """409 `stale-lease` when somebody else has the job: drop it."""
    farm, lease = services.farm, Lease(job_id, body.attempt, body.lease_token)
    beat = await services.database(
        farm.jobs.heartbeat, lease, lease_s=LEASE_S, stage=body.stage, board_id=_board_of(principal)
    )
    return HeartbeatAnswer(lease_s=LEASE_S, cancel=beat.cancel)


@routes.post(
    "/v1/jobs/{job_id}/result", Access.OWN_DEVICE, summary="Send a result",
    problems=(404, 409), response_model=ResultAnswer,
)  # fmt: skip
async def send_result(
    job_id: JobPath, body: ResultRequest, services: ServicesOf, principal: PrincipalOf
) -> ResultAnswer:
    """May be sent again: a repeat of the same attempt answers 200 and changes nothing. A result
    that comes after its lease has run out counts until somebody else has claimed the job."""
    farm, lease = services.farm, Lease(job_id, body.attempt, body.lease_token)

    def finish() -> tuple[Outcome, Finished]:
        outcome = outcome_of(body.outcome)
        return outcome, farm.results.finish_measure(
            lease, outcome, facts=body.facts, started_at=body.started_at,
            board_id=_board_of(principal),
        )  # fmt: skip

    outcome, finished = await services.database(finish)
    if finished.stored:
        services.metrics.results.labels(outcome_kind(outcome)).inc()
    if body.agent_log:
        # What a board says is for its operator: one line, bounded, escaped.
        services.logger.debug("agent", job=job_id, log=body.agent_log[-2_000:])
    if finished.run is not None:
        services.bells.ring([finished.run.id])
        if not finished.run.state.ended:
            services.sweeper.ring_work()
    return ResultAnswer(stored=finished.stored)


@routes.post(
    "/v1/jobs/{job_id}/release", Access.OWN_DEVICE, summary="Give a job back",
    problems=(404, 409), response_model=ReleaseAnswer,
)  # fmt: skip
async def release_job(
    job_id: JobPath, body: ReleaseRequest, services: ServicesOf, principal: PrincipalOf
) -> ReleaseAnswer:
    """For a board that drops a job: it is told to, stops, or its device has failed. The job goes
    to the queue again, unless its run is ending: then nothing has to wait for the lease's end."""
    job = await services.database(
        services.farm.jobs.fail, Lease(job_id, body.attempt, body.lease_token),
        body.reason or "the board gave the job back", board_id=_board_of(principal),
    )  # fmt: skip
    if job.run_id is not None:
        services.bells.ring([job.run_id])
    return ReleaseAnswer(state=job.state.value)  # pyright: ignore[reportArgumentType]


@routes.post(
    "/v1/devices/{device_id}/health", Access.OWN_DEVICE, summary="Say how the device is",
    problems=(404, 409), response_model=DeviceDocument,
)  # fmt: skip
async def report_health(
    device_id: DevicePath, body: HealthRequest, services: ServicesOf
) -> DeviceDocument:
    """A quarantined device gets no work. It lifts its own quarantine, not one that a person
    has set: that is a 409."""
    boards = services.farm.boards
    health = {"state": body.state, "reason": body.reason, **(body.model_extra or {})}
    await services.database(boards.seen, device_id, facts=body.facts, health=health)
    if body.state == "quarantined":
        board = await services.database(boards.quarantine, device_id, body.reason, by=AGENT)
    else:
        board = await services.database(boards.release, device_id, by=AGENT)
    return DeviceDocument.of(board)


def _board_of(principal: PrincipalOf) -> str:
    """Whose jobs these may be: for one of another board the answer is 404, as for none."""
    if principal.device_id is None:
        raise ProblemError("forbidden", "the token is of no device")
    return principal.device_id
