"""``/runs/{id}``: the front of a run, live, and everything that led to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import JSONResponse, Response

from api.auth import Access
from api.baselines import Baselines, baselines_of
from api.dashboard.candidates import load_candidate, predicted
from api.dashboard.forms import form_fields
from api.dashboard.page_routes import PageRouter, see_other
from api.dashboard.rendering import render_apart
from api.dashboard.views.budgets import fastest_within, parsed_size
from api.dashboard.views.devices import title_of
from api.dashboard.views.points import axes, cloud_columns, conditions_of, detail
from api.dashboard.views.references import References, references
from api.dashboard.views.reproduction import baseline_commands
from api.dashboard.views.rooflines import attained, compute_units_of, roofs
from api.dashboard.views.runs import RunLine, outcome_counts, run_line, subject_text
from api.layer_programs import layer_of
from api.problems import ProblemError, not_found
from api.routes.runs import RunPath
from api.routing import GuardedRouter
from api.services import PrincipalOf, ServicesOf
from api.settings import Settings
from db.farm.farm import Farm
from db.farm.fronts import StudiedPoint
from db.farm.measurements import Improvement
from db.farm.overviews import Failure, Point
from db.farm.run_records import NewRun, OwnedStudy, Run
from db.farm.selection import Selection
from db.records import CandidateRecord
from mapper.errors import Problem
from mapper.layer_spec import LayerSpec

#: Points that a page gets; dominated ones beyond are left out evenly, those of the front never.
MOST_POINTS = 20_000
MOST_DETAILS = 200
#: Lines that parallel coordinates can be read with.
MOST_LINES = 1_000
#: Steps of the best time that the page's table lists.
MOST_IMPROVEMENTS = 200
_AT_ONCE = 1_000
#: That a run of baselines measures: a layer in a variant is near its best by then, not at it.
BASELINE_CANDIDATES = 60

routes = PageRouter()
data = GuardedRouter("dashboard")


@dataclass(frozen=True, slots=True)
class _RunPage:
    line: RunLine
    layer: LayerSpec | None
    studies: tuple[OwnedStudy, ...]
    front: tuple[StudiedPoint, ...]
    details: dict[int, dict[str, Any]]
    failures: tuple[Failure, ...]
    improvements: tuple[Improvement, ...]
    references: References | None
    baselines: Baselines
    newest_event: int


@routes.get("/runs/{run_id}")
async def show_run(
    run_id: RunPath,
    request: Request,
    services: ServicesOf,
    budget: Annotated[str, Query(max_length=40)] = "",
) -> Response:
    """With ``budget`` also the fastest kernel that needs no more memory, without a script."""
    found = await services.database(_look, services.farm, run_id)
    bytes_allowed = parsed_size(budget) if budget else None

    def make() -> dict[str, Any]:
        return {
            "line": found.line,
            "run": found.line.run,
            "may_steer": request.state.principal.steers(found.line.run.principal),
            "layer": found.layer,
            "studies": found.studies,
            "front": found.front,
            "details": found.details,
            "outcomes": outcome_counts(found.line.run.progress.outcomes),
            "failures": found.failures,
            "improvements": found.improvements,
            "references": found.references,
            "baselines": found.baselines,
            "baseline_candidates": BASELINE_CANDIDATES,
            "baseline_command": _command(request, found),
            "budget": budget,
            "bytes_allowed": bytes_allowed,
            "within": None if bytes_allowed is None else fastest_within(found.front, bytes_allowed),
            "page_data": {
                "run": run_id,
                "state": found.line.run.state.value,
                "ended": found.line.run.state.ended,
                "event": found.newest_event,
                "operations": None if found.layer is None else found.layer.operations,
            },
        }

    return await render_apart(services, request, "run.html", make)


def _command(request: Request, found: _RunPage) -> str:
    """What measures the baselines that are missing, from a shell; empty where none is."""
    run, missing = found.line.run, found.baselines.missing
    if not missing:
        return ""
    url = str(request.base_url).rstrip("/")
    subject = run.request["subject"]
    return baseline_commands(subject, missing, run.board_id, BASELINE_CANDIDATES, url)


@routes.post("/runs/{run_id}/baselines", is_costly=True)
async def measure_baseline(
    run_id: RunPath, request: Request, services: ServicesOf, principal: PrincipalOf
) -> Response:
    """Make a run of the ``variant`` of the form, a baseline that is missing, on the same device
    by the same protocol; then its page."""
    variant = (await form_fields(request)).get("variant", "")
    found = await services.database(_look, services.farm, run_id)
    missing = found.baselines.missing
    if variant not in missing:
        allowed = ", ".join(missing) or "there is none"
        problem = Problem("/variant", "no baseline that is missing", variant[:64], allowed)
        raise ProblemError("invalid-input", problem.message, [problem])
    new = baseline_run(found.line.run, variant, principal.id, services.settings)
    made = await services.database(services.farm.runs.create, new)
    services.sweeper.ring_work()
    return see_other(f"/runs/{made.value.id}")


def baseline_run(run: Run, variant: str, principal: str, settings: Settings) -> NewRun:
    """A run of the same layer in another variant, measured as the run was."""
    kept = ("subject", "mode", "protocol")
    asked = {name: run.request[name] for name in kept if name in run.request}
    return NewRun(
        board_id=run.board_id,
        label=f"{variant} of {subject_text(run.request['subject'])}"[:200],
        principal=principal,
        request={**asked, "variants": [variant], "strategy": "auto", "seed": 0},
        budget_candidates=BASELINE_CANDIDATES,
        most_open=settings.max_open_runs_each,
        most_candidates=settings.max_candidates_each,
        most_bytes=settings.most_stored_bytes_each,
    )


def _look(farm: Farm, run_id: str) -> _RunPage:
    # The event first: what is measured after it comes to the page as news.
    newest_event = farm.events.newest(run_id)
    run = farm.runs.run(run_id)
    selection = Selection(run_id=run_id)
    studies = farm.runs.studies(run_id)
    front = farm.fronts.front(selection)
    shown = [point.measurement_id for point in front[:MOST_DETAILS]]
    layer = layer_of(run.request.get("subject", {}))
    improvements = farm.measurements.improvements(selection, limit=MOST_IMPROVEMENTS)
    first = improvements[0] if improvements else None
    return _RunPage(
        line=run_line(run, title_of(farm.boards.board(run.board_id))),
        layer=layer,
        studies=studies,
        front=front,
        details={row["id"]: row for row in _details(farm, studies, shown)},
        failures=farm.overviews.failures(selection),
        improvements=improvements,
        references=references(farm, run, studies, front, first),
        baselines=baselines_of(farm, run, front[0] if front else None),
        newest_event=newest_event,
    )


@data.get(
    "/dashboard/runs/{run_id}/points", Access.USER, summary="Points of a run",
    include_in_schema=False,
)  # fmt: skip
async def get_points(
    run_id: RunPath,
    services: ServicesOf,
    after: Annotated[int, Query(ge=0, lt=2**63)] = 0,
) -> Response:
    """As columns: all that a page shows, or what has come since the measurement ``after``."""

    def look() -> dict[str, Any]:
        studies = services.farm.runs.studies(run_id)
        selection = Selection(run_id=run_id)
        cloud = services.farm.overviews.cloud(selection, most=MOST_POINTS, after=after)
        return cloud_columns(cloud, studies)

    await services.database(services.farm.runs.run, run_id)
    return JSONResponse(await services.database(look))


@data.get(
    "/dashboard/runs/{run_id}/details", Access.USER, summary="Points of a run in detail",
    include_in_schema=False,
)  # fmt: skip
async def get_details(
    run_id: RunPath,
    services: ServicesOf,
    ids: Annotated[str, Query(max_length=4_000, pattern="^[0-9]{1,18}(,[0-9]{1,18})*$")],
) -> Response:
    """Trials, parameters and mappings of up to 200 measurements, in the order asked for."""
    wanted = [int(one) for one in ids.split(",")]
    if len(wanted) > MOST_DETAILS:
        problem = Problem("/ids", "too many", str(len(wanted)), f"at most {MOST_DETAILS}")
        raise ProblemError("invalid-input", problem.message, [problem])

    def look() -> list[dict[str, Any]]:
        return _details(services.farm, services.farm.runs.studies(run_id), wanted)

    return JSONResponse(await services.database(look))


def _details(farm: Farm, studies: Sequence[OwnedStudy], ids: list[int]) -> list[dict[str, Any]]:
    """Those of the measurements that belong to these studies, in the order of ``ids``."""
    known = {study.study_id: study for study in studies}
    stored = farm.overviews.measurements(ids)
    of_run = [stored[one] for one in ids if one in stored and stored[one].study_id in known]
    candidates = farm.catalogue.candidates(one.candidate_id for one in of_run)
    return [detail(one, candidates[one.candidate_id], known[one.study_id]) for one in of_run]


@data.get(
    "/dashboard/runs/{run_id}/axes", Access.USER, summary="Parameters of a run's candidates",
    include_in_schema=False,
)  # fmt: skip
async def get_axes(run_id: RunPath, services: ServicesOf) -> Response:
    """Of the front and an even sample of the others, a thousand in all."""

    def look() -> dict[str, Any]:
        shown = _points_with_candidates(services.farm, run_id, MOST_LINES)
        return axes([(point.measurement_id, candidate) for point, candidate in shown])

    return JSONResponse(await services.database(look))


@data.get(
    "/dashboard/runs/{run_id}/matching", Access.USER, summary="Which points meet a filter",
    include_in_schema=False,
)  # fmt: skip
async def get_matching(
    run_id: RunPath, services: ServicesOf, where: Annotated[str, Query(max_length=1_000)]
) -> Response:
    """Ids of the points that the page shows and whose mapping or parameters are as ``where``
    says (``28=W0 theta=4,8``)."""
    conditions = conditions_of(where)

    def look() -> list[int]:
        return [
            point.measurement_id
            for point, candidate in _points_with_candidates(services.farm, run_id, MOST_POINTS)
            if all(one.holds(candidate) for one in conditions)
        ]

    return JSONResponse(await services.database(look))


@data.get(
    "/dashboard/runs/{run_id}/roofline", Access.USER, summary="Rates below a device's roofs",
    problems=(404,), is_costly=True, include_in_schema=False,
)  # fmt: skip
async def get_roofline(run_id: RunPath, services: ServicesOf) -> Response:
    """Kernels of the front and the baselines with roofs from the cost model, which a solver
    child fits."""
    run = await services.database(services.farm.runs.run, run_id)
    layer = layer_of(run.request.get("subject", {}))
    front = await services.database(services.farm.fronts.front, Selection(run_id=run_id))
    if layer is None or not front:
        raise not_found("front of a layer in the run", run_id)
    best = await load_candidate(services, front[0].candidate_id, front[0].measurement_id)
    answer = await predicted(services, best)
    units = compute_units_of(best.profile())
    found = roofs(answer.end["constants"], units)
    baselines = await services.database(baselines_of, services.farm, run, front[0])
    of_front = {point.candidate_id for point in front}
    points = [one.point for one in baselines.others if one.point is not None]
    others = [point for point in points if point.candidate_id not in of_front]
    return JSONResponse(
        {
            "points": attained(front, layer.operations)
            + attained(others, layer.operations, baseline=True),
            "operations_per_s": found.operations_per_s,
            "bytes_per_s": found.bytes_per_s,
            "compute_units": units,
            "fitted": answer.end["fitted"],
            "median_error": answer.end["median_error"],
        }
    )


def _points_with_candidates(
    farm: Farm, run_id: str, most: int
) -> list[tuple[Point, CandidateRecord]]:
    """Up to so many points of a run, each with its candidate."""
    points = farm.overviews.cloud(Selection(run_id=run_id), most=most).points
    ids = sorted({point.candidate_id for point in points})
    found: dict[str, CandidateRecord] = {}
    for start in range(0, len(ids), _AT_ONCE):
        found |= farm.catalogue.candidates(ids[start : start + _AT_ONCE])
    return [(point, found[point.candidate_id]) for point in points]
