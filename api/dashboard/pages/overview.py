"""``/``: what is going on, what came out of it, and whether the devices are well."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from fastapi import Request
from starlette.responses import Response

from api.dashboard.page_routes import PageRouter
from api.dashboard.rendering import render
from api.dashboard.views.devices import DeviceLine, device_lines, title_of
from api.dashboard.views.runs import FrontCard, RunLine, front_card, run_lines
from api.services import ServicesOf
from db.farm.farm import Farm
from db.farm.selection import Selection
from db.farm.states import RunState

RUNS_SHOWN = 50
FRONTS_SHOWN = 6
DEVICES_SHOWN = 24

routes = PageRouter()


@dataclass(frozen=True, slots=True)
class _Found:
    going_on: list[RunLine]
    ended: list[RunLine]
    fronts: list[FrontCard]
    devices: list[DeviceLine]
    devices_in_all: int


@routes.get("/")
async def show_overview(request: Request, services: ServicesOf) -> Response:
    """Runs, fronts, devices."""
    found = await services.database(_look, services.farm, datetime.now(UTC))
    return render(
        request,
        "overview.html",
        going_on=found.going_on,
        ended=found.ended,
        fronts=found.fronts,
        devices=found.devices,
        devices_in_all=found.devices_in_all,
    )


def _look(farm: Farm, now: datetime) -> _Found:
    recent = list(farm.runs.page(limit=RUNS_SHOWN))
    known = {run.id for run in recent}
    # One that has gone on for long is behind all that were made since.
    for state in (RunState.RUNNING, RunState.PAUSED, RunState.QUEUED):
        older = farm.runs.page(limit=RUNS_SHOWN, state=state)
        recent += [run for run in older if run.id not in known]
    boards = farm.boards.page(limit=DEVICES_SHOWN)
    names = {board.id: title_of(board) for board in boards}
    for board_id in {run.board_id for run in recent} - names.keys():
        names[board_id] = title_of(farm.boards.board(board_id))
    lines = run_lines(recent, names)
    fronts: list[FrontCard] = []
    for line in lines:
        if line.run.progress.best_ms is not None and len(fronts) < FRONTS_SHOWN:
            fronts.append(front_card(line, farm.fronts.front(Selection(run_id=line.run.id))))
    return _Found(
        going_on=[line for line in lines if not line.run.state.ended],
        ended=[line for line in lines if line.run.state.ended],
        fronts=fronts,
        devices=device_lines(boards, farm.overviews.held_jobs(), now),
        devices_in_all=sum(farm.boards.counts().values()),
    )
