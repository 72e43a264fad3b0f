"""The dashboard: pages for people over the same functions as the HTTP API.

:mod:`api.dashboard.pages` has a router for each page, :mod:`api.dashboard.views` what templates
show, as pure functions.
"""

from __future__ import annotations

from fastapi import FastAPI

from api.dashboard import portraits, sign_in, static_files
from api.dashboard.page_routes import PageRouter
from api.dashboard.pages import (
    candidate,
    compare,
    devices,
    layer,
    network,
    overview,
    run,
    schedules,
)
from api.routing import GuardedRouter

#: The routers of all pages, in the order in which paths are tried.
PAGES: tuple[PageRouter, ...] = (
    sign_in.routes,
    overview.routes,
    run.routes,
    candidate.routes,
    compare.routes,
    layer.routes,
    schedules.routes,
    devices.routes,
    network.routes,
)
#: What scripts fetch and only they: like pages, no part of the API that others rely on.
DATA: tuple[GuardedRouter, ...] = (static_files.routes, run.data)


def install(app: FastAPI) -> None:
    """Add the pages to an application."""
    portraits.install(app)
    for routes in (*PAGES, *DATA):
        app.include_router(routes.router)
