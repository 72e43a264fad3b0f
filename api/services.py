"""What routes work with, made once by :func:`api.app.create_app` and kept in ``app.state``."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import Depends, Request

from api.auth import Authenticator, Principal, RequestLimit
from api.bells import Bells
from api.database import Database
from api.observing import Metrics
from api.operations import Operations
from api.settings import Settings
from api.sign_in_codes import SignInCodes
from api.solver_pool import SolverPool
from api.solving import Solving
from api.streaming import OpenStreams
from api.sweeper import RingWork, Sweeper
from api.tokens import principal_of_token
from db.farm.farm import Farm
from mapper.errors import NestmapError

#: Artifacts that one board fetches at once.
_DOWNLOADS_EACH = 4


class Readiness:
    """Whether the store can be written, found out once a second however often it is asked."""

    def __init__(self, farm: Farm, database: Database) -> None:
        self._farm = farm
        self._database = database
        self._known = ""
        self._until = 0.0

    async def fault(self) -> str:
        """Why not, or an empty text."""
        now = time.monotonic()
        if now >= self._until:
            self._until = now + 1.0
            try:
                self._known = await self._database(self._farm.fault)
            except NestmapError:
                self._known = "cannot be reached"
        return self._known


class Services:
    """Everything that is shared by the requests of one application."""

    def __init__(
        self,
        settings: Settings,
        farm: Farm,
        solver: SolverPool,
        metrics: Metrics,
        logger: Any,
        ring: RingWork | None,
    ) -> None:
        self.settings = settings
        self.farm = farm
        self.solver = solver
        self.metrics = metrics
        self.logger = logger
        self.database = Database(settings.database_threads)
        #: Large pages, one after the other: two of them would take each other's processor.
        self.pages = Database(1)
        self.readiness = Readiness(farm, self.database)
        self.bells = Bells()
        self.streams = OpenStreams(
            settings.max_streams, settings.max_streams_each, metrics.open_streams
        )
        # Boards fetch their arrays beside whatever people read.
        self.downloads = OpenStreams(settings.max_connections, _DOWNLOADS_EACH)
        self.solving = Solving(
            solver, farm.documents, self.database, metrics, settings.solve_time_s
        )
        self.operations = Operations(
            farm, self.solving, self.database, settings.most_stored_bytes_each, logger
        )
        self.sweeper = Sweeper(farm, self.database, self.bells, metrics, settings, logger, ring)
        self.sign_in_codes = SignInCodes()
        self.stopping = False
        self.authenticator = Authenticator(
            self._verify,
            cache_s=settings.token_cache_s,
            failures_per_minute=settings.failed_logins_per_minute,
        )
        self.solver_requests = RequestLimit(settings.solver_requests_per_minute)

    def stop(self) -> None:
        """End long polls and streams: the process is about to stop. From the loop's thread."""
        self.stopping = True
        self.bells.ring_all()

    async def _verify(self, token: str) -> Principal | None:
        return await self.database(principal_of_token, self.farm, token)


# Coroutines, though they wait for nothing: FastAPI calls plain functions in a thread, which
# costs a request more than all the rest of its way here.


async def services_of(request: Request) -> Services:
    """The services of the application that a request came to."""
    return request.app.state.services


async def principal_of(request: Request) -> Principal:
    """Who made the request; only for routes that are not public."""
    principal: Principal = request.state.principal
    return principal


ServicesOf = Annotated[Services, Depends(services_of)]
PrincipalOf = Annotated[Principal, Depends(principal_of)]
