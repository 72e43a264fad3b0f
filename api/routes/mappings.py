"""Valid mappings: pages, streams, counts, samples, and whether a given one is valid."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Any

from fastapi import Request
from starlette.responses import Response

from api.auth import Access
from api.operations import Preference
from api.paging import decode_cursor, encode_cursor
from api.routing import GuardedRouter
from api.schemas.operations import ACCEPTED
from api.schemas.solving import (
    About,
    BestPredicted,
    BestQuery,
    CheckQuery,
    Conflict,
    ConstraintList,
    Count,
    CountQuery,
    MappingsPage,
    MappingsQuery,
    RestrictedAbout,
    Sample,
    SampleQuery,
    StreamQuery,
    SubjectDescription,
    Verdict,
    Waterfall,
    WaterfallQuery,
)
from api.services import PrincipalOf, ServicesOf
from api.solver_pool import SolverProblem
from api.solving import as_problem, digest_of
from api.streaming import NDJSON, Stream, begun, line, problem_line

routes = GuardedRouter("mappings")
#: How a layer is computed in an answer, and why so.
_VARIANT = ("variant", "variant_reason")


@routes.post(
    "/v1/subjects/describe", Access.USER, summary="What a subject is", holds_program=True,
    response_model=SubjectDescription,
)  # fmt: skip
async def describe_subject(query: About, services: ServicesOf) -> dict[str, Any]:
    """Kernels with their nests of maps, the variables that a mapping chooses, and variants."""
    request = await services.solving.request_of("describe", query)
    answer = await services.solving.ask(request, services.solving.limits(query.time_limit_s))
    return {**answer.end, "variables": answer.items}


@routes.post(
    "/v1/constraints", Access.USER, summary="Constraints with their provenance",
    holds_program=True, response_model=ConstraintList,
)  # fmt: skip
async def list_constraints(query: About, services: ServicesOf) -> dict[str, Any]:
    """Every instance of every rule: what it says, of which maps, and which paper it is from."""
    request = await services.solving.request_of("constraints", query)
    answer = await services.solving.ask(request, services.solving.limits(query.time_limit_s))
    counts = dict(answer.end)
    variant = {name: counts.pop(name) for name in _VARIANT if name in counts}
    return {"constraints": answer.items, "counts": counts, **variant}


@routes.post(
    "/v1/constraints/waterfall", Access.USER, summary="How many mappings each rule leaves",
    holds_program=True, responses=ACCEPTED, response_model=Waterfall,
)  # fmt: skip
async def count_by_rule(
    query: WaterfallQuery, services: ServicesOf, principal: PrincipalOf, preference: Preference
) -> Any:
    """Counts before and after each rule, in the order in which the rules are applied."""
    request = await services.solving.request_of("waterfall", query)
    return await services.operations.answer(principal, preference, request, query.time_limit_s)


@routes.post(
    "/v1/mappings", Access.USER, summary="A page of the valid mappings", holds_program=True,
    response_model=MappingsPage,
)  # fmt: skip
async def list_mappings(query: MappingsQuery, services: ServicesOf) -> dict[str, Any]:
    """Walk the pages by sending `next` as `cursor` with the same question."""
    request = await services.solving.request_of("mappings", query)
    digest = digest_of(request)
    key = decode_cursor("mappings", query.cursor, int, str)
    if key is not None and key[1] != digest:
        key = decode_cursor("another question", query.cursor)
    request |= {"limit": query.limit, "after": 0 if key is None else key[0]}
    answer = await services.solving.ask(request, services.solving.limits(query.time_limit_s))
    following = answer.end.get("next")
    cursor = None if following is None else encode_cursor("mappings", (following, digest))
    variant = {name: answer.end.get(name) for name in _VARIANT}
    return {"items": answer.items, "next": cursor, "of": answer.end["of"], **variant}


@routes.post(
    "/v1/mappings/stream", Access.USER, summary="All valid mappings, a line each",
    holds_program=True, response_class=Response,
    responses={200: {"content": {NDJSON: {"schema": {"type": "string"}}}}},
)  # fmt: skip
async def stream_mappings(
    query: StreamQuery, services: ServicesOf, principal: PrincipalOf, request: Request
) -> Response:
    """NDJSON. The last line has `end`, or `problem` where there is no more of it; a stream
    without either was cut off. A reader that stops for some seconds gives its solver back, and
    gets the rest when it reads on."""
    asked = await services.solving.request_of("mappings", query)
    if query.limit is not None:
        asked["limit"] = query.limit
    limits = services.solving.limits(query.time_limit_s)
    instance: str = request.state.request_id

    async def lines() -> AsyncIterator[bytes]:
        with services.streams.one_more(principal.id):
            begun_already = False
            try:
                async with aclosing(services.solving.mappings(asked, limits)) as found:
                    async for kind, value in found:
                        yield line(value if kind == "item" else {"end": value})
                        begun_already = True
            except SolverProblem as error:
                if not begun_already:
                    raise
                yield problem_line(as_problem(error), instance)

    request.state.waits = True
    admitted = partial(services.authenticator.still_admits, request)
    return Stream(await begun(lines(), admitted), NDJSON, admitted=admitted)


@routes.post(
    "/v1/mappings/count", Access.USER, summary="How many mappings are valid",
    holds_program=True, responses=ACCEPTED, response_model=Count,
)  # fmt: skip
async def count_mappings(
    query: CountQuery, services: ServicesOf, principal: PrincipalOf, preference: Preference
) -> Any:
    """Exact; where the time was over, `complete` is false and `at_least` a lower bound."""
    request = await services.solving.request_of("count", query)
    return await services.operations.answer(principal, preference, request, query.time_limit_s)


@routes.post(
    "/v1/mappings/sample", Access.USER, summary="Some valid mappings, equally likely",
    holds_program=True, responses=ACCEPTED, response_model=Sample,
)  # fmt: skip
async def sample_mappings(
    query: SampleQuery, services: ServicesOf, principal: PrincipalOf, preference: Preference
) -> Any:
    """Different ones; the same seed gives the same ones."""
    request = await services.solving.request_of("sample", query, count=query.number)
    return await services.operations.answer(principal, preference, request, query.time_limit_s)


@routes.post(
    "/v1/mappings/best", Access.USER, summary="The mappings that are predicted to be fastest",
    holds_program=True, responses=ACCEPTED, response_model=BestPredicted,
)  # fmt: skip
async def find_best_predicted(
    query: BestQuery, services: ServicesOf, principal: PrincipalOf, preference: Preference
) -> Any:
    """Of the whole space, however large, by the analytic model; and a bound for all others.

    Where time is over before `proved`, they are the best so far and the bound still holds.
    """
    request = await services.solving.request_of("best", query, count=query.number)
    return await services.operations.answer(principal, preference, request, query.time_limit_s)


@routes.post(
    "/v1/mappings/check", Access.USER, summary="Is this mapping valid", holds_program=True,
    responses=ACCEPTED, response_model=Verdict,
)  # fmt: skip
async def check_mapping(
    query: CheckQuery, services: ServicesOf, principal: PrincipalOf, preference: Preference
) -> Any:
    """What it breaks, sentence by sentence, and the nearest mapping that is valid.

    Parameters and local sizes that are left open are chosen, and named in `assumed`.
    """
    request = await services.solving.request_of("check", query)
    request["nearest"] = query.nearest
    return await services.operations.answer(principal, preference, request, query.time_limit_s)


@routes.post(
    "/v1/mappings/explain", Access.USER, summary="Why no mapping is valid", holds_program=True,
    responses=ACCEPTED, response_model=Conflict,
)  # fmt: skip
async def explain_conflict(
    query: RestrictedAbout, services: ServicesOf, principal: PrincipalOf, preference: Preference
) -> Any:
    """A minimal set of constraints, pins and domains that cannot hold together."""
    request = await services.solving.request_of("explain", query)
    return await services.operations.answer(principal, preference, request, query.time_limit_s)
