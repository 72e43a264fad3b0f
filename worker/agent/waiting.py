"""Waiting that a signal, another thread or an answer of the executor ends at once."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable

#: The main loop never waits longer in one piece, so that the watchdog is fed.
LONGEST_PIECE_S = 1.0


class Waiter:
    """Waits for a time, a descriptor or a wake-up; a context manager."""

    def __init__(self, pulse: Callable[[], None]) -> None:
        self._pulse = pulse
        self._reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> Waiter:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._reading)
        os.close(self._writing)

    def wake(self) -> None:
        """End the wait under way, or the next one; from any thread or signal handler."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._writing, b"!")

    def wait(self, seconds: float, descriptor: int | None = None) -> bool:
        """Wait for at most ``seconds``; True if ``descriptor`` can be read.

        Returns early after a wake-up: the caller looks again at what it waits for.
        """
        end = time.monotonic() + seconds
        watched = [self._reading] if descriptor is None else [self._reading, descriptor]
        while True:
            self._pulse()
            remaining = end - time.monotonic()
            piece = max(0.0, min(remaining, LONGEST_PIECE_S))
            ready, _, _ = select.select(watched, [], [], piece)
            if self._reading in ready:
                with contextlib.suppress(BlockingIOError):
                    while os.read(self._reading, 512):
                        pass
                return descriptor in ready
            if ready:
                return True
            if remaining <= 0:
                return False
