"""Calls that block, away from the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import anyio
import anyio.to_thread

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
