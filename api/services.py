"""What routes work with, made once by :func:`api.app.create_app` and kept in ``app.state``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ParamSpec, TypeVar

import anyio
import anyio.to_thread
from fastapi import Depends, Request

from api.auth import Authenticator, Principal
from api.observing import Metrics
from api.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")


class Database:
    """Runs what talks to the database in threads: as many as there are connections for."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._limiter: anyio.CapacityLimiter | None = None

    async def __call__(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """The function's value. A request that is cancelled waits for its thread's end, so
        that no transaction is left behind."""
        if self._limiter is None:  # it belongs to the loop that runs
            self._limiter = anyio.CapacityLimiter(self._threads)
        return await anyio.to_thread.run_sync(
            lambda: function(*arguments, **named), limiter=self._limiter
        )


@dataclass(slots=True)
class Services:
    """Everything that is shared by the requests of one application."""

    settings: Settings
    database: Database
    store: Any
    solver: Any
    metrics: Metrics
    logger: Any
    authenticator: Authenticator | None = None


def services_of(request: Request) -> Services:
    """The services of the application that a request came to."""
    return request.app.state.services


def principal_of(request: Request) -> Principal:
    """Who made the request; only for routes that are not public."""
    principal: Principal = request.state.principal
    return principal


ServicesOf = Annotated[Services, Depends(services_of)]
PrincipalOf = Annotated[Principal, Depends(principal_of)]
