"""Bells by name: who waits for a device's work or a run's events is woken when there is some.

A bell is a hint and loses nothing: whoever hears one looks into the database, and looks there
from time to time without one (:mod:`api.sweeper`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator

import anyio


class Bells:
    """The bells of one event loop. :meth:`ring` may be called from any thread."""

    def __init__(self) -> None:
        self._listeners: dict[str, set[asyncio.Event]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextlib.contextmanager
    def listening(self, name: str) -> Iterator[asyncio.Event]:
        """An event that is set at each ring; clear it before looking for what it tells of."""
        self._loop = asyncio.get_running_loop()
        event = asyncio.Event()
        self._listeners.setdefault(name, set()).add(event)
        try:
            yield event
        finally:
            listeners = self._listeners[name]
            listeners.discard(event)
            if not listeners:
                del self._listeners[name]

    @property
    def names(self) -> tuple[str, ...]:
        """The bells that somebody listens to."""
        return tuple(self._listeners)

    def ring(self, names: Iterable[str]) -> None:
        """Wake all who listen to any of these."""
        loop, wanted = self._loop, tuple(names)
        if loop is None or not wanted or loop.is_closed():
            return
        # From a thread that stores results as well as from the loop itself.
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(self._set, wanted)

    def ring_all(self) -> None:
        """Wake everybody: the service is stopping."""
        self.ring(self.names)

    def _set(self, names: tuple[str, ...]) -> None:
        for name in names:
            for event in self._listeners.get(name, ()):
                event.set()


async def heard(event: asyncio.Event, within_s: float) -> bool:
    """Whether the bell rang within the time."""
    with anyio.move_on_after(within_s):
        await event.wait()
        return True
    return False
