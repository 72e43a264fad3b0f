"""Long work: how far it is, what came of it, and that it is not wanted any more."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from api.auth import Access
from api.operations import operation_of
from api.problems import not_found
from api.routing import GuardedRouter
from api.schemas.operations import Operation
from api.services import PrincipalOf, Services, ServicesOf
from db.farm.errors import AbsentError
from db.farm.job_records import Job
from db.farm.states import JobKind

routes = GuardedRouter("operations")
JobId = Annotated[str, Path(pattern="^job_[0-9a-z]{26}$")]


@routes.get(
    "/v1/operations/{job_id}", Access.USER, summary="An operation", problems=(404,),
    response_model=Operation,
)  # fmt: skip
async def get_operation(job_id: JobId, services: ServicesOf, principal: PrincipalOf) -> Operation:
    """Its state, and its result once it is done."""
    return operation_of(await _own_job(services, job_id, principal))


@routes.post(
    "/v1/operations/{job_id}/cancel", Access.USER, summary="Cancel an operation",
    problems=(404, 409), response_model=Operation,
)  # fmt: skip
async def cancel_operation(
    job_id: JobId, services: ServicesOf, principal: PrincipalOf
) -> Operation:
    """Its solver process is stopped. 409 if it has ended."""
    await _own_job(services, job_id, principal)
    return operation_of(await services.operations.cancel(job_id))


async def _own_job(services: Services, job_id: str, principal: PrincipalOf) -> Job:
    """A user's own operation; to an admin, everybody's."""
    try:
        job = await services.database(services.farm.jobs.job, job_id)
    except AbsentError:
        raise not_found("operation", job_id) from None
    if job.kind is not JobKind.SOLVE or not principal.steers(job.principal):
        raise not_found("operation", job_id)
    return job
