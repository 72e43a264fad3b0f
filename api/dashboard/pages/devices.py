"""``/devices``: boards, what they hold, how warm they are, and whether they get work."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from api.dashboard.page_routes import PageRouter
from api.dashboard.rendering import render
from api.dashboard.views.devices import DeviceLine, device_line, device_lines
from api.dashboard.views.histories import HistoryView, history_view
from api.dashboard.views.runs import RunLine, run_lines
from api.paging import DeviceCursor, decode_keyset, encode_keyset
from api.routes.leases import DevicePath
from api.services import ServicesOf
from db.farm.farm import Farm
from db.farm.records import Event, Keyset
from db.farm.states import BoardState
from db.farm.strikes import Strike

PAGE = 100
RUNS_SHOWN = 20
EVENTS_SHOWN = 50

routes = PageRouter()


@routes.get("/devices")
async def show_devices(
    request: Request,
    services: ServicesOf,
    state: Annotated[BoardState | None, Query()] = None,
    cursor: DeviceCursor = None,
) -> Response:
    """All of them, newest first, a page at a time."""
    lines, counts, following = await services.database(
        _list, services.farm, state, decode_keyset("devices", cursor), datetime.now(UTC)
    )
    return render(
        request,
        "devices.html",
        lines=lines,
        counts=counts,
        in_all=sum(counts.values()),
        state=state,
        following=following,
    )


def _list(
    farm: Farm, state: BoardState | None, after: Keyset | None, now: datetime
) -> tuple[list[DeviceLine], dict[BoardState, int], str | None]:
    boards = farm.boards.page(limit=PAGE + 1, after=after, state=state)
    shown = boards[:PAGE]
    more = len(boards) > PAGE
    following = encode_keyset("devices", shown[-1].created_at, shown[-1].id) if more else None
    return device_lines(shown, farm.overviews.held_jobs(), now), farm.boards.counts(), following


@dataclass(frozen=True, slots=True)
class _Found:
    line: DeviceLine
    history: HistoryView
    runs: list[RunLine]
    events: tuple[Event, ...]
    strikes: tuple[Strike, ...]


@routes.get("/devices/{device_id}")
async def show_device(device_id: DevicePath, request: Request, services: ServicesOf) -> Response:
    """One of them: facts, readings over time, its runs, what happened to it."""
    found = await services.database(_look, services.farm, device_id, datetime.now(UTC))
    board = found.line.board
    return render(
        request,
        "device.html",
        line=found.line,
        board=board,
        history=found.history,
        runs=found.runs,
        events=found.events,
        strikes=found.strikes,
        profile=board.facts.get("profile"),
        facts=sorted((name, value) for name, value in board.facts.items() if name != "profile"),
        page_data={"device": device_id, "history": found.history.to_json()},
    )


def _look(farm: Farm, device_id: str, now: datetime) -> _Found:
    board = farm.boards.board(device_id)
    held = [job for job in farm.overviews.held_jobs() if job.board_id == device_id]
    line = device_line(board, held, now)
    return _Found(
        line=line,
        history=history_view(farm.boards.history(device_id)),
        runs=run_lines(
            farm.runs.page(limit=RUNS_SHOWN, board_id=device_id), {device_id: line.title}
        ),
        events=farm.events.of_board(device_id, limit=1_000)[-EVENTS_SHOWN:][::-1],
        strikes=farm.strikes.of_board(device_id, limit=1_000)[::-1],
    )
