"""Candidates, measurements, fronts, and all of these as files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from typing import Annotated, Literal

from fastapi import Path, Query, Request
from pydantic import Field, StringConstraints
from starlette.responses import Response

from api.auth import Access, Principal, Role
from api.baselines import Baselines, baselines_of
from api.caching import CONTENT_CACHING, etag_of, not_modified
from api.exports import MEDIA_TYPES, ExportFormat, exported
from api.paging import (
    DEFAULT_PAGE,
    MAX_PAGE,
    MEASUREMENTS_CURSOR,
    NEXT,
    Limit,
    StudyCursor,
    decode_cursor,
    encode_cursor,
)
from api.problems import not_found
from api.routes.runs import RunPath
from api.routes.subjects import HashPath, IfNoneMatch
from api.routing import GuardedRouter
from api.schemas.measurements import (
    BaselineDocument,
    BaselinesDocument,
    CandidateDocument,
    Front,
    FrontPointDocument,
    ImprovementDocument,
    MeasurementDocument,
    MeasurementPage,
    Series,
    StudyDocument,
    StudyPage,
    VolumeDocument,
)
from api.schemas.types import MAX_WHOLE, NeverNull
from api.selections import Filters
from api.services import PrincipalOf, Services, ServicesOf
from api.streaming import Stream, begun
from db.farm.fronts import StudiedPoint
from db.farm.records import Artifact
from db.farm.selection import Selection
from mapper.errors import InputError

routes = GuardedRouter("measurements")
MeasurementPath = Annotated[int, Path(ge=0, le=MAX_WHOLE)]
_Cursor = Annotated[str, StringConstraints(pattern=MEASUREMENTS_CURSOR)]
_SERIES_POINTS = 1_000


class PageFilters(Filters):
    """Filters with a place in the list."""

    limit: int = Field(default=DEFAULT_PAGE, ge=1, le=MAX_PAGE)
    cursor: Annotated[_Cursor | None, NeverNull()] = Field(default=None, description=NEXT)
    order: Literal["oldest", "newest"] = "oldest"


class FrontFilters(Filters):
    """Filters with bounds."""

    max_memory_bytes: int | None = Field(default=None, ge=0, le=MAX_WHOLE)
    max_time_ms: float | None = Field(default=None, ge=0, le=1e15)

    def has(self, point: StudiedPoint) -> bool:
        """Whether a point lies within the bounds."""
        most_bytes, most_ms = self.max_memory_bytes, self.max_time_ms
        return (most_bytes is None or point.memory_bytes <= most_bytes) and (
            most_ms is None or point.time_ms <= most_ms
        )


class ExportFilters(Filters):
    """Filters with the format of a file."""

    format: ExportFormat = ExportFormat.CSV


@routes.get(
    "/v1/candidates/{candidate_id}", Access.USER, summary="A candidate", problems=(404,),
    response_model=CandidateDocument,
)  # fmt: skip
async def get_candidate(candidate_id: HashPath, services: ServicesOf) -> CandidateDocument:
    """Mapping, parameters and local sizes. Its source is /v1/artifacts/{source_hash}."""
    try:
        found = await services.database(services.farm.store.candidate, candidate_id)
    except InputError:
        raise not_found("candidate", candidate_id) from None
    return CandidateDocument.of(candidate_id, found)


@routes.get("/v1/studies", Access.USER, summary="Studies", response_model=StudyPage)
async def list_studies(
    services: ServicesOf, limit: Limit = DEFAULT_PAGE, cursor: StudyCursor = None
) -> StudyPage:
    """Oldest first. The variants of a run's layer are studies of their own."""
    key = decode_cursor("studies", cursor, int)
    after = 0 if key is None else int(key[0])
    found = await services.database(services.farm.catalogue.studies, after=after, limit=limit + 1)
    items, more = found[:limit], len(found) > limit
    names = await _device_names(services, (study.device_id for study in items))
    return StudyPage(
        items=[StudyDocument.of(study, names.get(study.device_id, "")) for study in items],
        next=encode_cursor("studies", (items[-1].id,)) if more else None,
    )


@routes.get(
    "/v1/studies/{study_id}", Access.USER, summary="A study", problems=(404,),
    response_model=StudyDocument,
)  # fmt: skip
async def get_study(study_id: MeasurementPath, services: ServicesOf) -> StudyDocument:
    """One search for one program on one device."""
    try:
        found = await services.database(services.farm.store.study, study_id)
    except InputError:
        raise not_found("study", str(study_id)) from None
    names = await _device_names(services, [found.device_id])
    return StudyDocument.of(found, names.get(found.device_id, ""))


@routes.get("/v1/measurements", Access.USER, summary="Measurements", response_model=MeasurementPage)
async def list_measurements(
    filters: Annotated[PageFilters, Query()], services: ServicesOf
) -> Response:
    """In the order in which they were stored, or the newest first. A page ends before `limit`
    where its measurements have many trials; `next` is null on the last one only."""
    key = decode_cursor(f"measurements-{filters.order}", filters.cursor, int)
    farm = services.farm

    def written() -> str:
        items, more = farm.measurements.page_and_more(
            filters.selection(),
            limit=filters.limit,
            after=None if key is None else int(key[0]),
            newest_first=filters.order == "newest",
        )
        names = farm.catalogue.device_names(item.device_id for item in items)
        last = items[-1].measurement.id if items else 0
        return MeasurementPage(
            items=[MeasurementDocument.of(item, names.get(item.device_id, "")) for item in items],
            next=encode_cursor(f"measurements-{filters.order}", (last,)) if more else None,
        ).model_dump_json()

    return Response(await services.database(written), media_type="application/json")


@routes.get(
    "/v1/measurements/export", Access.USER, summary="Measurements as a file",
    responses={
        200: {
            "content": {
                media: {"schema": {}} for media in ("text/csv", "application/json",
                                                    "application/x-ndjson")
            }
        }
    },
    response_class=Response,
)  # fmt: skip
async def export_measurements(
    filters: Annotated[ExportFilters, Query()],
    request: Request,
    services: ServicesOf,
    principal: PrincipalOf,
) -> Response:
    """CSV, JSON, NDJSON, or T4 as Kernel Tuner writes and reads it. A file of JSON or T4 that
    does not end in a bracket was cut off."""
    selection = await services.database(filters.selection)
    request.state.waits = True
    suffix = {ExportFormat.T4: "t4.json"}.get(filters.format, filters.format.value)
    headers = {"Content-Disposition": f'attachment; filename="measurements.{suffix}"'}
    pieces = await begun(exported(services, principal, selection, filters.format))
    admitted = partial(services.authenticator.still_admits, request)
    return Stream(pieces, MEDIA_TYPES[filters.format], headers, admitted)


@routes.get(
    "/v1/measurements/{measurement_id}", Access.USER, summary="A measurement", problems=(404,),
    response_model=MeasurementDocument,
)  # fmt: skip
async def get_measurement(
    measurement_id: MeasurementPath, services: ServicesOf
) -> MeasurementDocument:
    """With every trial."""
    found = await services.database(services.farm.measurements.measurement, measurement_id)
    names = await _device_names(services, [found.device_id])
    return MeasurementDocument.of(found, names.get(found.device_id, ""))


@routes.get("/v1/fronts", Access.USER, summary="The time-memory front", response_model=Front)
async def get_front(filters: Annotated[FrontFilters, Query()], services: ServicesOf) -> Front:
    """Of a run, a layer, a device, a span of time, or any of these together; exact.

    With `max_memory_bytes` and `max_time_ms` only what lies within them.
    """
    farm = services.farm

    def look() -> tuple[list[StudiedPoint], list[StudiedPoint], dict[str, int], dict[int, str]]:
        selection = filters.selection()
        # What beats a point within the bounds lies within them itself, so that the front of the
        # part is the part of the front.
        front = [point for point in farm.fronts.front(selection) if filters.has(point)]
        claims = [point for point in farm.fronts.claims(selection) if filters.has(point)]
        names = farm.catalogue.device_names(point.device_id for point in (*front, *claims))
        return front, claims, farm.measurements.counts(selection), names

    found, claims, outcomes, names = await services.database(look)
    points, unconfirmed = (
        [FrontPointDocument.of(point, names.get(point.device_id, "")) for point in some]
        for some in (found, claims)
    )
    return Front(
        points=points,
        unconfirmed=unconfirmed,
        fastest=points[0] if points else None,
        smallest=points[-1] if points else None,
        measured=sum(outcomes.values()),
        outcomes=outcomes,
    )


@routes.get(
    "/v1/runs/{run_id}/series", Access.USER, summary="How a run got better", problems=(404,),
    response_model=Series,
)  # fmt: skip
async def get_run_series(run_id: RunPath, services: ServicesOf) -> Series:
    """The best time and the hypervolume after each outcome that changed them; at most a
    thousand points of each."""
    await services.database(services.farm.runs.run, run_id)
    selection, measurements = Selection(run_id=run_id), services.farm.measurements
    better = await services.database(measurements.improvements, selection, limit=_SERIES_POINTS)
    volume = await services.database(measurements.hypervolume, selection, limit=_SERIES_POINTS)
    return Series(
        improvements=[ImprovementDocument.of(found) for found in better],
        hypervolume=[VolumeDocument.of(found) for found in volume.volumes],
        reference_ms=volume.reference_ms,
        reference_bytes=volume.reference_bytes,
    )


@routes.get(
    "/v1/runs/{run_id}/baselines", Access.USER, summary="What a run is held against",
    problems=(404,), response_model=BaselinesDocument,
)  # fmt: skip
async def get_run_baselines(run_id: RunPath, services: ServicesOf) -> BaselinesDocument:
    """Each other variant of the run's layer by its fastest kernel on the same device in the same
    state, whichever run measured it. `high-level` (plain loops) and, where it does the
    layer, `direct` (CC'22's tiles) are listed even where nobody has: then `point` is null."""
    farm = services.farm

    def look() -> tuple[Baselines, str]:
        run = farm.runs.run(run_id)
        best = farm.fronts.fastest(Selection(run_id=run_id))
        names = {} if best is None else farm.catalogue.device_names([best.device_id])
        return baselines_of(farm, run, best), next(iter(names.values()), "")

    found, name = await services.database(look)
    return BaselinesDocument(
        best=None if found.best is None else FrontPointDocument.of(found.best, name),
        baselines=[BaselineDocument.of(other, name) for other in found.others],
    )


@routes.get(
    "/v1/artifacts/{artifact_hash}", Access.USER_OR_DEVICE, summary="Bytes by their SHA-256",
    problems=(404,),
    responses={
        200: {"content": {"application/octet-stream": {"schema": {"type": "string"}}}},
        304: {"description": "As `If-None-Match` says"},
    },
    response_class=Response,
)  # fmt: skip
async def get_artifact(
    artifact_hash: HashPath,
    request: Request,
    services: ServicesOf,
    principal: PrincipalOf,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Kernel sources, inputs and references. A device gets those of its own jobs."""
    artifacts = services.farm.artifacts

    def look() -> tuple[Artifact | None, bytes | None]:
        if principal.role is not Role.DEVICE:
            return artifacts.find(artifact_hash), None
        # A kernel's source comes with the look whether it is the board's.
        return artifacts.of_board(artifact_hash, principal.device_id or "") or (None, None)

    found, whole = await services.database(look)
    if found is None:
        raise not_found("artifact", artifact_hash)
    unchanged = not_modified(artifact_hash, if_none_match)
    if unchanged is not None:
        return unchanged
    request.state.waits = True
    headers = {
        "ETag": etag_of(artifact_hash),
        "Content-Length": str(found.size),
        "Content-Disposition": f'attachment; filename="{artifact_hash}"',
    }
    if whole is not None:
        headers["Cache-Control"] = CONTENT_CACHING
        return Response(whole, media_type="application/octet-stream", headers=headers)
    pieces = await begun(_chunks(services, principal, artifacts.chunks(artifact_hash)))
    admitted = partial(services.authenticator.still_admits, request)
    response = Stream(pieces, "application/octet-stream", headers, admitted)
    response.headers["Cache-Control"] = CONTENT_CACHING
    return response


async def _chunks(
    services: Services, principal: Principal, chunks: Iterator[bytes]
) -> AsyncIterator[bytes]:
    """The chunks, each read in a thread when the one before has been sent."""
    of_device = principal.role is Role.DEVICE
    with (services.downloads if of_device else services.streams).one_more(principal.id):
        while True:
            chunk = await services.database(next, chunks, None)
            if chunk is None:
                return
            yield chunk


async def _device_names(services: Services, ids: Iterable[int]) -> dict[int, str]:
    """Of those that are shown: a farm has many devices."""
    return await services.database(services.farm.catalogue.device_names, ids)
