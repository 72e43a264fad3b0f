"""The application: :func:`create_app`. Nothing is opened, started or read when it is imported."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import Response

from api import dashboard, openapi
from api.bounded_json import BodyLimit
from api.dashboard.rendering import error_page, wants_page
from api.observing import Metrics, RequestLog, route_template, service_logger
from api.problems import ProblemError, ProblemResponse, invalid_input, problem_of
from api.request_guard import RequestGuard
from api.routes import (
    catalogue,
    devices,
    leases,
    mappings,
    measurements,
    operations,
    runs,
    schedules,
    session,
    subjects,
)
from api.routes.documentation import documentation_router
from api.routes.health import health_router
from api.services import Services
from api.settings import Settings
from api.solver_pool import SolverPool, SolverProblem
from api.solving import as_problem
from api.sweeper import RingWork
from api.tracing import trace_requests
from db.farm.farm import Farm
from mapper.errors import NestmapError, StoreError


def create_app(
    settings: Settings,
    farm: Farm,
    solver: SolverPool,
    *,
    ring: RingWork | None = None,
    logger: Any = None,
) -> FastAPI:
    """The HTTP API over a farm and a pool of solver processes, opened and closed by others.

    ``ring`` is called in the event loop with the ids of jobs that wait for a solver worker, and
    must not block: a broker's bell, or the embedded runner's. ``logger`` takes the place of
    JSON lines on standard error. ``app.state.services.stop()`` ends long polls and streams;
    ``app.state.services.bells.ring([device_id])`` wakes a board at once, from any thread.
    """
    metrics = Metrics()
    logger = logger or service_logger(settings.log_level)
    services = Services(settings, farm, solver, metrics, logger, ring)
    app = FastAPI(
        title="nestmap",
        version=version("nestmap"),
        summary="Every valid way to run a convolution in parallel.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        redirect_slashes=False,
        telemetry={"tracing": False},
        middleware=[
            Middleware(RequestLog, metrics=metrics, logger=logger),
            Middleware(RequestGuard),
            Middleware(BodyLimit, max_bytes=settings.body_bytes, timeout_s=settings.body_timeout_s),
        ],
    )
    app.state.services = services
    for router in (
        # Routes are tried in this order, and most requests are a board's.
        leases.routes.router,
        health_router(settings.metrics_open),
        documentation_router(settings.docs_open),
        catalogue.routes.router,
        mappings.routes.router,
        schedules.routes.router,
        operations.routes.router,
        runs.routes.router,
        devices.routes.router,
        subjects.routes.router,
        measurements.routes.router,
        session.routes.router,
    ):
        app.include_router(router)
    dashboard.install(app)
    _handle_errors(app)
    app.openapi = lambda: _document(app)
    if settings.telemetry:
        app.state.tracing = trace_requests(app)
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    services: Services = app.state.services
    services.sweeper.start()
    try:
        yield
    finally:
        services.stop()
        await services.operations.close()
        await services.sweeper.close()
        services.database.close()
        services.pages.close()
        if services.settings.telemetry:
            app.state.tracing.shutdown()


def _document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        app.openapi_schema = openapi.document(app)
    return app.openapi_schema


def _handle_errors(app: FastAPI) -> None:
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(NestmapError, _on_nestmap_error)
    app.add_exception_handler(SolverProblem, _on_solver_problem)


async def _on_http_error(request: Request, error: Exception) -> Response:
    if isinstance(error, ProblemError):
        return _answer(request, error)
    assert isinstance(error, HTTPException)
    # What the framework itself refuses.
    slug = {404: "not-found", 405: "method-not-allowed", 413: "body-too-large"}.get(
        error.status_code, "malformed-request" if error.status_code < 500 else "internal"
    )
    headers = dict(error.headers or {})
    if slug == "method-not-allowed":
        headers["Allow"] = ", ".join(_methods_of(request))
    return _answer(request, ProblemError(slug, headers=headers))


def _methods_of(request: Request) -> list[str]:
    """The methods of a path: the framework names those of its first route only."""
    paths: dict[str, Any] = request.app.openapi()["paths"]
    route = route_template(request.scope)
    return sorted(method.upper() for method in paths.get(route, {"get": None}))


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _answer(request, invalid_input(error.errors()))


async def _on_nestmap_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, NestmapError)
    if isinstance(error, StoreError):
        services: Services = request.app.state.services
        services.logger.error("store", error=str(error)[:2000])
    return _answer(request, problem_of(error))


async def _on_solver_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, SolverProblem)
    return _answer(request, as_problem(error))


def _answer(request: Request, error: ProblemError) -> Response:
    if wants_page(request):
        return error_page(request, error)
    return ProblemResponse(error, getattr(request.state, "request_id", ""))
