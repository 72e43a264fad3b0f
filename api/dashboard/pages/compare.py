"""Two to four candidates beside each other; which ones is in the URL."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response

from api.dashboard.candidates import Candidate, load_candidate
from api.dashboard.page_routes import PageRouter
from api.dashboard.portraits import PortraitsOf
from api.dashboard.rendering import render, render_apart
from api.dashboard.views.candidates import candidate_view, outcome_view
from api.dashboard.views.comparisons import comparison
from api.problems import ProblemError
from api.services import ServicesOf
from db.farm.farm import Farm
from db.farm.fronts import StudiedPoint
from db.farm.selection import Selection

routes = PageRouter()
MOST_COMPARED = 4
_MOST_OFFERED = 50
_ID = re.compile("[0-9a-f]{64}")


@routes.get("/compare", is_costly=True)
async def compare(
    request: Request,
    services: ServicesOf,
    portraits: PortraitsOf,
    c: Annotated[list[str], Query(default_factory=list, max_length=MOST_COMPARED + 2)],
) -> Response:
    """``c`` are ids of candidates; an empty one is a field of the form that was left empty."""
    ids = list(dict.fromkeys(one.strip() for one in c if one.strip()))
    wrong = next((one for one in ids if not _ID.fullmatch(one)), None)
    if wrong is not None:
        raise ProblemError("invalid-input", f"c: {wrong[:80]!r} is not the id of a candidate")
    if len(ids) > MOST_COMPARED:
        raise ProblemError("invalid-input", f"c: at most {MOST_COMPARED} candidates")
    candidates = [await load_candidate(services, one) for one in ids]
    offered = await services.database(_front_of, services.farm, candidates)
    if not candidates:
        return render(request, "compare.html", candidates=(), offered=offered, found=None)
    described = [await portraits.of(services, candidate) for candidate in candidates]

    def make() -> dict[str, Any]:
        views = [candidate_view(*pair) for pair in zip(candidates, described, strict=True)]
        sources = [
            candidate.source or (portrait.end or {}).get("source")
            for candidate, portrait in zip(candidates, described, strict=True)
        ]
        return {
            "candidates": candidates,
            "views": views,
            "outcomes": [outcome_view(one.meant) if one.meant else None for one in candidates],
            "offered": [point for point in offered if point.candidate_id not in ids],
            "found": comparison(candidates, views, sources),
            "problems": [view.problem for view in views if view.problem],
        }

    return await render_apart(services, request, "compare.html", make)


def _front_of(farm: Farm, candidates: list[Candidate]) -> list[StudiedPoint]:
    """Candidates that one may want beside these: the front of their run."""
    run = next((one.run for one in candidates if one.run is not None), None)
    if run is None:
        return []
    return list(farm.fronts.front(Selection(run_id=run.id)))[:_MOST_OFFERED]
