"""What a layer's page asks of solver children, each question within a bound of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from api.problems import ProblemError
from api.routes.mappings import list_mappings
from api.schemas.solving import About, MappingsQuery
from api.services import Services
from api.solver_pool import Answer, SolverProblem
from api.solving import as_problem

DESCRIBE_S = 20.0
MAPPINGS_S = 30.0
CHECK_S = 20.0
MOST_WATERFALL_S = 120


@dataclass(frozen=True, slots=True)
class Asked:
    """An answer, or why there is none: one of the two is None."""

    answer: Answer | None
    problem: ProblemError | None


async def ask(services: Services, kind: str, about: About, seconds: float, **fields: Any) -> Asked:
    """An answer of a solver child; a refusal becomes part of the page."""
    try:
        request = await services.solving.request_of(kind, about)
        answer = await services.solving.ask(request | fields, services.solving.limits(seconds))
    except SolverProblem as error:
        return Asked(None, as_problem(error))
    except ProblemError as error:
        return Asked(None, error)
    return Asked(answer, None)


@dataclass(frozen=True, slots=True)
class MappingsPage:
    """Some mappings under pins and forbidden values, and how many there are altogether; None
    where nobody asked, or the time was over."""

    items: list[dict[str, Any]]
    next: str | None
    of: str
    count: int | None
    problem: ProblemError | None


async def mappings_page(
    services: Services, query: MappingsQuery, count_s: int | None
) -> MappingsPage:
    """A page as ``POST /v1/mappings`` gives it, and the count within ``count_s``."""
    try:
        page = await list_mappings(query, services)
    except SolverProblem as error:
        return MappingsPage([], None, "mappings", None, as_problem(error))
    except ProblemError as error:
        return MappingsPage([], None, "mappings", None, error)
    if count_s is None:
        return MappingsPage(page["items"], page["next"], page["of"], None, None)
    about = About.model_validate(
        query.model_dump(include=set(About.model_fields) - {"time_limit_s"}, exclude_none=True)
    )
    restrictions = {"pin": query.pin, "forbid": query.forbid}
    counted = await ask(services, "count", about, float(count_s), **restrictions)
    count = None if counted.answer is None else counted.answer.end.get("count")
    return MappingsPage(page["items"], page["next"], page["of"], count, None)
