"""Tuning runs: created once, watched while they go on, paused, resumed, cancelled."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import Header, Path, Query, Request
from pydantic import StringConstraints
from starlette.responses import JSONResponse, Response

from api.auth import Access, Principal, Role
from api.events import nothing_more, run_events
from api.paging import DEFAULT_PAGE, Limit, RunCursor, decode_keyset, encode_keyset
from api.problems import ProblemError
from api.routing import GuardedRouter
from api.schemas.farm import DeviceId, Label, RunDocument, RunPage, RunRequest
from api.schemas.solving import About
from api.schemas.types import MAX_WHOLE, NeverNull
from api.services import PrincipalOf, Services, ServicesOf
from api.solver_problems import SolverProblem
from api.streaming import EVENT_STREAM, Stream, begun
from db.farm.errors import AbsentError
from db.farm.records import IdempotencyKey, StoredResponse
from db.farm.run_records import NewRun, Run
from db.farm.states import RunState
from mapper.errors import InputError, Problem
from mapper.layer_sets import layer_of_name
from mapper.layer_spec import LayerSpec
from mapper.variants import VARIANTS

routes = GuardedRouter("runs")
RunPath = Annotated[str, Path(pattern="^run_[0-9a-z]{26}$")]
IdempotencyHeader = Annotated[
    Annotated[str, StringConstraints(pattern="^[\\x21-\\x7e]{1,200}$")] | None,
    NeverNull(),
    Header(
        alias="Idempotency-Key",
        description="The same key with the same body creates one run, however often it is sent",
    ),
]  # fmt: skip
EventId = Annotated[str, StringConstraints(pattern="^[0-9]{1,15}$")]
_REPLAYED = {"Idempotent-Replayed": "true"}
#: A program is held against the type checker before a run of it is accepted.
_DESCRIBE_S = 20.0


@routes.post(
    "/v1/runs", Access.USER, summary="Create a tuning run", status=201, problems=(409,),
    holds_program=True, response_model=RunDocument,
)  # fmt: skip
async def create_run(
    body: RunRequest,
    request: Request,
    services: ServicesOf,
    principal: PrincipalOf,
    idempotency_key: IdempotencyHeader = None,
) -> Response:
    """Its candidates are measured by the device as soon as it asks for work."""
    if body.priority > 0 and principal.role is not Role.ADMIN:
        problem = Problem(
            "/priority", "only admins put a run before those of others", str(body.priority), "0"
        )
        raise ProblemError("forbidden", problem.message, [problem])
    subject, label = await _checked_subject(services, body)
    new = NewRun(
        board_id=body.device,
        label=body.label or label,
        principal=principal.id,
        request=body.for_proposers(subject),
        budget_candidates=body.budget.candidates,
        budget_seconds=body.budget.seconds,
        priority=body.priority,
        low_water=body.low_water,
        stand_ins=tuple(body.stand_ins),
        most_open=services.settings.max_open_runs_each,
        most_candidates=services.settings.max_candidates_each,
        most_bytes=services.settings.most_stored_bytes_each,
    )
    key = None
    if idempotency_key is not None:
        sent = request.method.encode() + request.url.path.encode() + b"\n" + await request.body()
        key = IdempotencyKey(principal.id, idempotency_key, hashlib.sha256(sent).hexdigest())
    try:
        accepted = await services.database(services.farm.runs.create, new, key, _created)
    except AbsentError as error:
        path = error.problems[0].path
        is_stand_in = path.startswith("stand_ins/")
        found = body.stand_ins[int(path.rpartition("/")[2])] if is_stand_in else body.device
        place = f"/{path}" if is_stand_in else "/device"
        problem = Problem(place, "there is no such device", found)
        raise ProblemError("invalid-input", problem.message, [problem]) from None
    services.sweeper.ring_work()
    response = accepted.response or _created(accepted.value)
    headers = {"Location": f"/v1/runs/{accepted.value.id}"}
    if accepted.repeated:
        headers |= _REPLAYED
    body_of_answer = {**response.body, "request": dict(accepted.value.request)}
    return JSONResponse(body_of_answer, response.status, headers)


def _created(run: Run) -> StoredResponse:
    """The answer without what was asked, which the run itself keeps, counted for its owner."""
    return StoredResponse(201, RunDocument.of(run).model_dump(mode="json", exclude={"request"}))


async def _checked_subject(services: Services, body: RunRequest) -> tuple[dict[str, Any], str]:
    """The subject as solver children read it and a name for it.

    Raises ProblemError or SolverProblem for what could not be tuned.
    """
    about = About.model_validate({"subject": body.subject, "mode": body.mode, **body.stated()})
    request = await services.solving.request_of("describe", about)
    subject: dict[str, Any] = request["subject"]
    layer = _layer_of(subject)
    if body.where and len(body.variants or ()) != 1 and (layer is not None or body.variants):
        problem = Problem(
            "/where", "speaks of the names of one variant", str(body.variants)[:80],
            "one name in variants",
        )  # fmt: skip
        raise ProblemError("invalid-input", problem.message, [problem])
    names = dict(enumerate(body.variants or ()))
    if layer is None:
        await _require_sketches(services, request, body, names)
        answer = await services.solving.ask(request, services.solving.limits(_DESCRIBE_S))
        if not answer.end["has_kernels"]:
            problem = Problem("/subject", "has mappings but no kernels, so nothing can be measured")
            raise ProblemError("invalid-input", problem.message, [problem])
        return subject, str(answer.end["label"])[:200] or "program"
    own = {place: name for place, name in names.items() if name in VARIANTS}
    for place, name in own.items():
        refusal = VARIANTS[name].applies(layer)
        if refusal is not None:
            found = Problem(f"/variants/{place}", "does not do this layer", str(refusal))
            raise ProblemError("invalid-input", found.message, [found])
    sketches = {place: name for place, name in names.items() if name not in VARIANTS}
    await _require_sketches(services, request, body, sketches)
    for name in own.values() if body.stated() else ():
        # What is stated is read where the space is known.
        asked = {**request, "variant": name}
        await services.solving.ask(asked, services.solving.limits(_DESCRIBE_S))
    return subject, layer.name[:200] or "layer"


async def _require_sketches(
    services: Services, request: dict[str, Any], body: RunRequest, names: Mapping[int, str]
) -> None:
    """Raises SolverProblem for names, by their places among the variants, that are no sketches of
    the subject on the device. Of a device that has not called yet nothing is known: its first
    proposal tells."""
    if not names:
        return
    try:
        board = await services.database(services.farm.boards.board, body.device)
    except AbsentError:
        return  # which is told of where the run is made
    if board.limits is None:
        return
    for place, name in names.items():
        asked = {**request, "device": board.limits, "variant": name}
        try:
            await services.solving.ask(asked, services.solving.limits(_DESCRIBE_S))
        except SolverProblem as problem:
            raise problem.placed({"/variant": f"/variants/{place}"}) from None


def _layer_of(subject: dict[str, Any]) -> LayerSpec | None:
    """The layer that a subject is; None for anything else, which a child has to read."""
    name = subject.get("name")
    if name is not None:
        return layer_of_name(name)
    document: dict[str, Any] = subject.get("document", {})
    schema = document.get("schema", "")
    is_layer = isinstance(schema, str) and schema.startswith("nestmap/layer/")
    if not is_layer and ("schema" in document or "channels" not in document):
        return None
    try:
        return LayerSpec.from_json({"name": "layer", **document})
    except InputError as error:
        raise ProblemError("invalid-input", error.problems[0].message, error.problems) from None


@routes.get("/v1/runs", Access.USER, summary="Tuning runs", response_model=RunPage)
async def list_runs(
    services: ServicesOf,
    limit: Limit = DEFAULT_PAGE,
    cursor: RunCursor = None,
    state: RunState | None = None,
    device: Annotated[DeviceId | None, Query()] = None,
    label: Annotated[Label | None, Query()] = None,
) -> RunPage:
    """Newest first. A page ends early where what the runs were asked is long."""
    after = decode_keyset("runs", cursor)
    items, more = await services.database(
        services.farm.runs.page_and_more,
        limit=limit, after=after, state=state, board_id=device, label=label,
    )  # fmt: skip
    return RunPage(
        items=[RunDocument.of(run) for run in items],
        next=encode_keyset("runs", items[-1].created_at, items[-1].id) if more else None,
    )


@routes.get(
    "/v1/runs/{run_id}", Access.USER, summary="A tuning run", problems=(404,),
    response_model=RunDocument,
)  # fmt: skip
async def get_run(run_id: RunPath, services: ServicesOf) -> RunDocument:
    """Its state and how far it is."""
    return RunDocument.of(await services.database(services.farm.runs.run, run_id))


@routes.post(
    "/v1/runs/{run_id}/pause", Access.USER, summary="Pause a run", problems=(403, 404, 409),
    response_model=RunDocument,
)  # fmt: skip
async def pause_run(run_id: RunPath, services: ServicesOf, principal: PrincipalOf) -> RunDocument:
    """No more candidates are given out; what is being measured goes on. A repeat is allowed."""
    return await _step(services, services.farm.runs.pause, run_id, principal)


@routes.post(
    "/v1/runs/{run_id}/resume", Access.USER, summary="Go on with a run", problems=(403, 404, 409),
    response_model=RunDocument,
)  # fmt: skip
async def resume_run(run_id: RunPath, services: ServicesOf, principal: PrincipalOf) -> RunDocument:
    """A repeat is allowed."""
    return await _step(services, services.farm.runs.resume, run_id, principal)


@routes.post(
    "/v1/runs/{run_id}/cancel", Access.USER, summary="Cancel a run", problems=(403, 404, 409),
    response_model=RunDocument,
)  # fmt: skip
async def cancel_run(run_id: RunPath, services: ServicesOf, principal: PrincipalOf) -> RunDocument:
    """What is queued is dropped; it is `cancelling` until the measurement under way has ended.
    What was measured stays."""
    return await _step(services, services.farm.runs.cancel, run_id, principal)


async def _step(services: Services, step: Any, run_id: str, principal: Principal) -> RunDocument:
    """A step of a run that its owner or an admin asks for; ProblemError 403 for others."""
    found: Run = await services.database(services.farm.runs.run, run_id)
    if not principal.steers(found.principal):
        raise ProblemError(
            "forbidden", f"the run is of token {found.principal}; ask it or an admin"
        )
    run: Run = await services.database(step, run_id)
    services.bells.ring([run.id, run.board_id])
    services.sweeper.ring_work()
    return RunDocument.of(run)


@routes.get(
    "/v1/runs/{run_id}/events", Access.USER, summary="A run as it goes on",
    problems=(404,), response_class=Response,
    responses={
        200: {"content": {EVENT_STREAM: {}}},
        204: {"description": "The run has ended and everything was sent: stay away"},
    },
)  # fmt: skip
async def watch_run(
    run_id: RunPath,
    request: Request,
    services: ServicesOf,
    principal: PrincipalOf,
    after: Annotated[int, Query(ge=0, le=MAX_WHOLE, description="The last event heard")] = 0,
    last_event_id: Annotated[EventId | None, NeverNull(), Header(alias="Last-Event-ID")] = None,
) -> Response:
    """Server-sent events with ids; send the last one as `Last-Event-ID` (browsers do) to go on
    behind it. Comments keep the line open, `end` is the last event."""
    if last_event_id is not None:
        after = int(last_event_id)
    run = await services.database(services.farm.runs.run, run_id)
    if await nothing_more(services, run, after):
        return Response(status_code=204)
    request.state.waits = True
    events = run_events(
        services, run_id, after, principal, partial(services.authenticator.still_admits, request)
    )
    return Stream(await begun(events), EVENT_STREAM)
