"""Schedules: a program after each step of one, and the schedules worth having."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import Request
from pydantic import ValidationError
from starlette.responses import Response

from api.dashboard.forms import form_fields
from api.dashboard.page_routes import PageRouter
from api.dashboard.rendering import render, render_apart
from api.dashboard.subjects import ask
from api.dashboard.views.derivations import steps_of
from api.problems import ProblemError, invalid_input
from api.schemas.schedules import DeriveQuery, SketchesQuery
from api.schemas.solving import OfSubject
from api.services import Services, ServicesOf
from mapper.profiles import profile_names

routes = PageRouter()
Q = TypeVar("Q", bound=OfSubject)
#: What came of a question, as the template wants it: made where the page is made, for hundreds of
#: steps of a large program take a second.
Found = Callable[[], dict[str, Any]]
#: Seconds for a derivation, and for all sketches.
_DERIVE_S = 20.0
_SKETCHES_S = 30.0
#: What the page shows before anything was entered.
_PROGRAM = "vgg16/7"
_SCHEDULE = """schedule "tiles" {
  split(row, 4)
  split(column, 8)
  reorder([row_tile, column_tile, row_in_tile, column_in_tile])
}
"""


@routes.get("/schedules")
async def show_form(request: Request) -> Response:
    """A program and a schedule to be changed."""
    entered = {"program": _PROGRAM, "schedule": _SCHEDULE, "device": "pocl"}
    return render(request, "schedules.html", **_context(entered))


@routes.post("/schedules", is_costly=True)
async def show_derivation(request: Request, services: ServicesOf) -> Response:
    """The steps of the schedule, or with ``wanted=sketches`` the schedules worth having."""
    form = await form_fields(request)
    entered = {
        "program": form.get("program", "").replace("\r\n", "\n").strip(),
        "schedule": form.get("schedule", "").replace("\r\n", "\n"),
        "device": form.get("device", "pocl"),
    }
    wanted = _sketches if form.get("wanted") == "sketches" else _derived
    try:
        found = await wanted(services, entered)
    except ProblemError as error:
        found = _refused(error)
    return await render_apart(
        services, request, "schedules.html", lambda: _context(entered, **found())
    )


async def _derived(services: Services, entered: dict[str, str]) -> Found:
    query = _read(DeriveQuery, entered, schedule=entered["schedule"], partial=True)
    asked = await ask(services, "derive", query, _DERIVE_S)
    if asked.answer is None:
        return _refused(asked.problem)
    items, end = asked.answer.items, asked.answer.end
    return lambda: {
        "steps": steps_of(end["start"], end["start_loops"], items),
        "refusal": end["refusal"],
        "name": end["schedule"]["name"],
        "derived": True,
    }


async def _sketches(services: Services, entered: dict[str, str]) -> Found:
    query = _read(SketchesQuery, entered, device=entered["device"])
    asked = await ask(services, "sketches", query, _SKETCHES_S)
    if asked.answer is None:
        return _refused(asked.problem)
    items = asked.answer.items
    return lambda: {"sketches": items, "listed": True}


def _refused(problem: ProblemError | None) -> Found:
    return lambda: {"problem": problem}


def _read(kind: type[Q], entered: dict[str, str], **fields: Any) -> Q:
    """The question that a form states: a layer is one word, anything else a program's text."""
    program = entered["program"]
    subject = {"name": program} if len(program.split()) == 1 else {"text": program}
    try:
        return kind.model_validate({"subject": subject, **fields})
    except ValidationError as error:
        raise invalid_input(error.errors()) from None


def _context(entered: dict[str, str], **found: Any) -> dict[str, Any]:
    return {
        "entered": entered, "profiles": profile_names(),
        "problem": None, "steps": (), "refusal": None, "sketches": (), "name": "",
        "derived": False, "listed": False, **found,
    }  # fmt: skip
