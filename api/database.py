"""Calls that block, away from the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import anyio

P = ParamSpec("P")
T = TypeVar("T")


class Database:
    """Runs what talks to the database in threads: as many as there are connections for.

    They are threads of a plain pool: anyio's cost a busy service a tenth of its time more.
    """

    def __init__(self, threads: int) -> None:
        self._most = threads
        self._threads: ThreadPoolExecutor | None = None

    async def __call__(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """The function's value. A request that is cancelled waits for its thread's end, so
        that no transaction is left behind."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._most, "database")
        work = self._threads.submit(function, *arguments, **named)
        value = asyncio.wrap_future(work)
        try:
            return await asyncio.shield(value)
        except asyncio.CancelledError:
            if not work.cancel():
                with anyio.CancelScope(shield=True):
                    await asyncio.wait([value])
            raise

    def close(self) -> None:
        """End the threads, when nobody calls any more."""
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None
