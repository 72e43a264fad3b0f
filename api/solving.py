"""Questions for solver children: what of a body they get, and how long they may work on it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any

from api.auth import ASKING
from api.database import Database
from api.observing import Metrics
from api.problems import ProblemError
from api.schemas.solving import About, StoredSubject
from api.solver_pool import Answer, SolverLimits, SolverPool, SolverProblem
from mapper.errors import InputError, Problem

#: Fields of a body that are the API's own; the rest goes to the child as it is.
_OWN_FIELDS = frozenset({"time_limit_s", "cursor", "limit", "number", "subject"})
#: Beside the wall time a child has processor time for this many busy threads.
_THREADS = 2.0
#: Mappings that are found before a reader has taken those before, and how long a child may wait for
#: it, in all its pauses together, until it is given back.
_AHEAD = 16
_STALLED_S = 5.0


class Solving:
    """Asks the pool, counts what came of it, and keeps every request within its time."""

    def __init__(
        self, pool: SolverPool, documents: Any, database: Database, metrics: Metrics, most_s: float
    ) -> None:
        self._pool = pool
        self._documents = documents
        self._database = database
        self._metrics = metrics
        self._most_s = most_s

    async def request_of(self, kind: str, about: About, **fields: Any) -> dict[str, Any]:
        """What a child is asked. ProblemError 422 for a stored subject that is not there."""
        values = about.model_dump(exclude_none=True, exclude=set(_OWN_FIELDS))
        known = type(about).model_fields
        request = {
            name: value
            for name, value in values.items()
            # What says nothing is left out, so that a question is one however it was put.
            if value not in ([], False, True) or value != known[name].default
        }
        request["subject"] = await self._subject(about)
        return {"kind": kind, **request, **fields}

    async def _subject(self, about: About) -> dict[str, Any]:
        if not isinstance(about.subject, StoredSubject):
            return about.subject.model_dump()
        try:
            found = await self._database(self._documents.used, about.subject.id)
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
            return await self._pool.ask(request, limits, who=ASKING.get())

    async def mappings(
        self, request: Mapping[str, Any], limits: SolverLimits
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """``("item", …)`` of a request for mappings as they are found, and its ``("end", …)``.

        A reader that stands still, or reads slowly, gives its child back after some seconds of
        waiting; when it has read what was found, a child goes on behind that. All of them together
        have the time of ``limits``.
        Closing the generator stops the work.
        """
        count, left_s = 0, limits.wall_s
        while True:
            part = _Part()
            rest = {**request, "after": count} if count else dict(request)
            if "limit" in request:
                rest["limit"] = request["limit"] - count
            pump = asyncio.create_task(self._pump(rest, replace(limits, wall_s=left_s), part))
            try:
                while (item := await part.found.get()) is not None:
                    part.room.release()
                    count += 1
                    yield "item", item
                end = await pump
            finally:
                pump.cancel()
                await asyncio.wait([pump])
            if end is not None:
                yield "end", {**end, "count": count}
                return
            left_s = max(left_s - part.used_s, 0.001)

    async def _pump(
        self, request: Mapping[str, Any], limits: SolverLimits, part: _Part
    ) -> dict[str, Any] | None:
        """Put what a child finds where it is read; its end, or None where nobody reads."""
        loop = asyncio.get_running_loop()
        try:
            with self._counted(str(request["kind"])):
                async with self._pool.stream(request, limits, ASKING.get()) as stream:
                    began = loop.time()
                    async for kind, value in stream:
                        if kind != "item":
                            continue
                        waits = loop.time()
                        try:
                            async with asyncio.timeout(_STALLED_S - part.waited_s):
                                await part.room.acquire()
                        except TimeoutError:
                            part.used_s = waits - began - part.waited_s
                            return None
                        part.waited_s += loop.time() - waits
                        part.found.put_nowait(value)
                    return stream.end
        finally:
            part.found.put_nowait(None)

    def _counted(self, kind: str) -> _Counted:
        return _Counted(self._metrics, kind)


class _Part:
    """What one child finds for a stream: what is not read yet, with an end, and room for more."""

    def __init__(self) -> None:
        self.found: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.room = asyncio.Semaphore(_AHEAD)
        self.used_s = 0.0
        self.waited_s = 0.0


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
    soon = error.reason == "full" or error.slug == "unavailable"
    headers = {"Retry-After": "1"} if soon else None
    return ProblemError(error.slug, error.detail, error.errors, headers, **error.more)
