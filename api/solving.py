"""Questions for solver children: what of a body they get, and how long they may work on it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from api.database import Database
from api.observing import Metrics
from api.problems import ProblemError
from api.schemas.solving import About, StoredSubject
from api.solver_pool import Answer, SolverLimits, SolverPool, SolverProblem, SolverStream
from mapper.errors import InputError, Problem

#: Fields of a body that are the API's own; the rest goes to the child as it is.
_OWN_FIELDS = frozenset({"time_limit_s", "cursor", "limit", "number", "subject"})
#: Beside the wall time a child has processor time for this many busy threads.
_THREADS = 2.0


class Solving:
    """Asks the pool, counts what came of it, and keeps every request within its time."""

    def __init__(
        self, pool: SolverPool, store: Any, database: Database, metrics: Metrics, most_s: float
    ) -> None:
        self._pool = pool
        self._store = store
        self._database = database
        self._metrics = metrics
        self._most_s = most_s

    async def request_of(self, kind: str, about: About, **fields: Any) -> dict[str, Any]:
        """What a child is asked. ProblemError 422 for a stored subject that is not there."""
        values = about.model_dump(exclude_none=True, exclude=set(_OWN_FIELDS))
        request = {name: value for name, value in values.items() if value not in ([], False)}
        request["subject"] = await self._subject(about)
        return {"kind": kind, **request, **fields}

    async def _subject(self, about: About) -> dict[str, Any]:
        if not isinstance(about.subject, StoredSubject):
            return about.subject.model_dump()
        try:
            found = await self._database(self._store.program, about.subject.id)
        except InputError:
            problem = Problem("/subject/id", "nothing was posted with this id", about.subject.id)
            raise ProblemError("invalid-input", problem.message, [problem]) from None
        return {"document": json.loads(found.json_text)}

    def limits(self, time_limit_s: float | None) -> SolverLimits:
        """What a child may use for a request of this time limit."""
        wall_s = self._most_s if time_limit_s is None else min(time_limit_s, self._most_s)
        return SolverLimits(cpu_s=_THREADS * wall_s + 1, wall_s=wall_s)

    async def ask(self, request: Mapping[str, Any], limits: SolverLimits) -> Answer:
        """The whole answer. SolverProblem where there is none."""
        with self._counted(str(request["kind"])):
            return await self._pool.ask(request, limits)

    @asynccontextmanager
    async def stream(
        self, request: Mapping[str, Any], limits: SolverLimits
    ) -> AsyncIterator[SolverStream]:
        """The answer as it is found; leaving the block stops the child's work."""
        with self._counted(str(request["kind"])):
            async with self._pool.stream(request, limits) as stream:
                yield stream

    def _counted(self, kind: str) -> _Counted:
        return _Counted(self._metrics, kind)


class _Counted:
    """Counts how a task ended: ``done``, ``stopped`` or the name of its problem."""

    def __init__(self, metrics: Metrics, kind: str) -> None:
        self._metrics = metrics
        self._kind = kind

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        match error:
            case None:
                end = "done"
            case SolverProblem():
                end = error.reason or error.slug
            case _:
                end = "stopped"
        self._metrics.solver_tasks.labels(self._kind, end).inc()


def digest_of(request: Mapping[str, Any]) -> str:
    """Sixteen digits that tell requests apart, so that a cursor serves one question only."""
    text = json.dumps(request, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def as_problem(error: SolverProblem) -> ProblemError:
    """A refusal of the solver as the client gets it."""
    headers = {"Retry-After": "1"} if error.slug == "unavailable" else None
    return ProblemError(error.slug, error.detail, error.errors, headers, **error.more)
