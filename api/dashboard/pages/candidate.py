"""A candidate: what it does, how fast it was, and why it is valid."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query, Request
from starlette.responses import Response

from api.dashboard.candidates import Candidate, load_candidate, predicted
from api.dashboard.forms import form_fields
from api.dashboard.page_routes import PageRouter, see_other
from api.dashboard.portraits import PortraitsOf
from api.dashboard.rendering import render_apart
from api.dashboard.views.candidates import (
    candidate_view,
    outcome_view,
    prediction_view,
    timed_ms,
)
from api.dashboard.views.layers import LayerAddress, chosen_texts
from api.dashboard.views.reproduction import kernel_command
from api.dashboard.views.schedules import legend
from api.dashboard.views.sources import highlighted_lines
from api.problems import ProblemError
from api.services import PrincipalOf, Services, ServicesOf
from api.settings import Settings
from api.solver_pool import SolverProblem
from api.solving import as_problem
from db.farm.identifiers import BOARD_PREFIX
from db.farm.records import Board
from db.farm.run_records import NewRun
from db.farm.states import BoardState
from mapper.profiles import profile_names

routes = PageRouter()
CandidatePath = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]
_MOST_BOARDS = 100


@routes.get("/candidates/{candidate_id}", is_costly=True)
async def show_candidate(
    request: Request,
    candidate_id: CandidatePath,
    services: ServicesOf,
    portraits: PortraitsOf,
    measurement: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
    predict: bool = False,
    run: Annotated[str, Query(max_length=64, pattern="^(run_[0-9a-z]{26})?$")] = "",
) -> Response:
    """The page. ``measurement`` chooses one of several, ``predict`` asks the cost model too,
    ``run`` is a re-measurement that was just asked for."""
    candidate = await load_candidate(services, candidate_id, measurement)
    portrait = await portraits.of(services, candidate)
    prediction, no_prediction = None, ""
    if predict:
        prediction, no_prediction = await _prediction(services, candidate)
    boards = await services.database(services.farm.boards.page, limit=_MOST_BOARDS)

    def make() -> dict[str, Any]:
        described = portrait.end or {}
        source = candidate.source or described.get("source")
        # In the order in which kernels print their parameters, which a store does not keep.
        chosen = described["assignment"] if described.get("valid") else candidate.chosen
        subject, variant = candidate.subject()
        mode = "strict" if candidate.meant is None else candidate.meant.mode
        return {
            "candidate": candidate,
            "view": candidate_view(candidate, portrait),
            "legend": legend(),
            "source": source,
            "source_is_stored": candidate.source is not None,
            "source_lines": highlighted_lines(source) if source else (),
            "measurements": [(m, outcome_view(m), timed_ms(m)) for m in candidate.measurements],
            "command": kernel_command(subject, variant, mode, candidate.profile(), chosen),
            "prediction": prediction,
            "no_prediction": no_prediction,
            "boards": _measuring(boards, candidate.board),
            "new_run": run,
            "check_url": _check_url(candidate),
            "program_text": described.get("program", ""),
        }

    return await render_apart(services, request, "candidate.html", make)


def _check_url(candidate: Candidate) -> str:
    """The check of this very mapping; empty where the layer's page knows no such device."""
    profile = candidate.profile()
    if not isinstance(profile, str):
        profile = profile.get("name", "")
    if profile not in profile_names() or not candidate.has_mapping:
        return ""
    variant = candidate.meant.variant if candidate.meant and candidate.layer_name else ""
    address = LayerAddress(candidate.subject_path, variant, profile)
    return address.checking(chosen_texts(candidate.chosen)).url()


def _measuring(boards: tuple[Board, ...], own: Board | None) -> list[Board]:
    """Boards that may measure it again, the one that did first."""
    usable = [board for board in boards if board.state is not BoardState.DISABLED]
    return sorted(usable, key=lambda board: (own is None or board.id != own.id, board.name))


async def _prediction(services: Services, candidate: Candidate) -> tuple[Any, str]:
    try:
        answer = await predicted(services, candidate)
    except SolverProblem as error:
        return None, str(as_problem(error).detail)
    timed = candidate.timed
    return prediction_view(answer.items, answer.end, timed.time_ms if timed else None), ""


@routes.post("/candidates/{candidate_id}/re-measure", is_costly=True)
async def measure_again(
    request: Request, candidate_id: CandidatePath, services: ServicesOf, principal: PrincipalOf
) -> Response:
    """Make a run of this candidate alone, with every choice pinned; then the page with its link."""
    form = await form_fields(request)
    device = form.get("device", "")
    if not device.startswith(BOARD_PREFIX):
        raise ProblemError("invalid-input", "device: no device was chosen")
    candidate = await load_candidate(services, candidate_id)
    if not candidate.has_mapping:
        raise ProblemError("invalid-input", "what was stored of this candidate is no mapping")
    new = re_measurement(candidate, device, principal.id, services.settings)
    made = await services.database(services.farm.runs.create, new)
    services.sweeper.ring_work()
    return see_other(f"/candidates/{candidate_id}?run={made.value.id}")


def re_measurement(
    candidate: Candidate, board_id: str, principal: str, settings: Settings
) -> NewRun:
    """A run whose space is this candidate: maps, parameters and local sizes are pinned."""
    subject, variant = candidate.subject()
    chosen = candidate.chosen
    pins = [f"{name}={code}" for name, code in chosen["mapping"].items()]
    pins += [f"{name}={value}" for name, value in chosen["parameters"].items()]
    pins += [
        f"{kernel}.{dimension}={size}"
        for kernel, sizes in chosen["local_sizes"].items()
        for dimension, size in enumerate(sizes)
    ]
    wanted: dict[str, Any] = {
        "subject": subject,
        "mode": "strict",
        "strategy": "random",
        "seed": 0,
        "pin": pins,
    }
    if variant:
        wanted["variants"] = [variant]
    return NewRun(
        board_id=board_id,
        label=f"again: {candidate.label} {candidate.id[:10]}",
        principal=principal,
        request=wanted,
        budget_candidates=1,
        most_open=settings.max_open_runs_each,
        most_candidates=settings.max_candidates_each,
        most_bytes=settings.most_stored_bytes_each,
    )
