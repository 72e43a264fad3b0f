"""/healthz, /readyz, /version and /metrics, for supervisors and scrapers."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import JSONResponse, Response

from api.auth import Access
from api.routing import GuardedRouter
from api.schemas.service import Health, Readiness, Version
from api.services import ServicesOf


def health_router(metrics_open: bool) -> APIRouter:
    """The routes; with open metrics these need no token."""
    routes = GuardedRouter("service")

    @routes.get("/healthz", Access.PUBLIC, summary="Is the process alive", response_model=Health)
    async def get_health() -> Health:
        """Says only that this process answers; see /readyz for what it depends on."""
        return Health(status="ok")

    @routes.get(
        "/readyz", Access.PUBLIC, summary="Can requests be served", response_model=Readiness,
        responses={503: {"model": Readiness, "description": "Not now"}},
    )  # fmt: skip
    async def get_readiness(services: ServicesOf) -> Response:
        """503 while the database cannot be written (it says why) or no solver process runs."""
        database = await services.readiness.fault() or "ok"
        solver = "ok" if services.solver.pids else "no solver process runs"
        ready = database == solver == "ok"
        answer = Readiness(
            status="ready" if ready else "not-ready", database=database, solver=solver
        )
        return JSONResponse(answer.model_dump(), 200 if ready else 503)

    @routes.get("/version", Access.PUBLIC, summary="What runs here", response_model=Version)
    async def get_version() -> Version:
        """The release and the protocol versions that it speaks."""
        return Version(nestmap=version("nestmap"), api="v1", lease_protocol=1)

    @routes.get(
        "/metrics", Access.PUBLIC if metrics_open else Access.USER, summary="Prometheus metrics",
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
        response_class=Response,
    )  # fmt: skip
    async def get_metrics(request: Request) -> Response:
        """Counts and times by route template; see docs/http-api.md for their names."""
        services = request.app.state.services
        content = generate_latest(services.metrics.registry)
        return Response(content, media_type=CONTENT_TYPE_LATEST)

    return routes.router
