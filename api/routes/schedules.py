"""Schedules: a program after each step of one, and those worth having."""

from __future__ import annotations

from typing import Any

from api.auth import Access
from api.operations import Preference
from api.routing import GuardedRouter
from api.schemas.operations import ACCEPTED
from api.schemas.schedules import Derivation, DeriveQuery, SketchesQuery, SketchList
from api.services import PrincipalOf, ServicesOf

routes = GuardedRouter("schedules")


@routes.post(
    "/v1/schedules/derive", Access.USER, summary="A program after each step of a schedule",
    holds_program=True, responses=ACCEPTED, response_model=Derivation,
)  # fmt: skip
async def derive_program(
    query: DeriveQuery, services: ServicesOf, principal: PrincipalOf, preference: Preference
) -> Any:
    """Each step keeps what is computed. A step that does not apply is refused with its number,
    what it found and what it needs."""
    request = await services.solving.request_of("derive", query)
    return await services.operations.answer(principal, preference, request, query.time_limit_s)


@routes.post(
    "/v1/schedules/sketches", Access.USER, summary="The schedules worth having on a device",
    holds_program=True, responses=ACCEPTED, response_model=SketchList,
)  # fmt: skip
async def list_sketches(
    query: SketchesQuery, services: ServicesOf, principal: PrincipalOf, preference: Preference
) -> Any:
    """Each with its reason; sizes are left open as tuning parameters. `text` is what
    `/v1/schedules/derive` takes."""
    request = await services.solving.request_of("sketches", query)
    return await services.operations.answer(principal, preference, request, query.time_limit_s)
