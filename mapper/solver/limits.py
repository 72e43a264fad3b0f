"""Bounds on what a solver may use, and how it learns that it has to stop.

A service gives every request a budget; whoever computes calls :meth:`Watch.tick` at least a few
times a second, which is where deadlines and cancellations take effect.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from mapper.errors import LimitError, Problem

#: The memory that is allowed where nothing else is said, in bytes.
DEFAULT_MEMORY = 2 * 2**30
# Looking at the memory of the process takes some 20 microseconds.
_LOOK_EVERY_S = 0.05
_PAGE_BYTES = resource.getpagesize()

#: Called with a fraction between 0 and 1, or a number of things done where none is known.
Progress = Callable[[float], None]


class Cancelled(Exception):
    """The caller asked to stop. Not an error of the input, so no NestmapError."""


@dataclass(frozen=True, slots=True)
class SolveLimits:
    """What one computation may use; None is unbounded.

    ``time_s`` wall-clock seconds; ``memory_bytes`` by which the process may grow, so far as the
    system tells (Linux does), and of the arrays that hold states, arcs and solutions anyway;
    ``solutions`` that may be materialised at once; ``expression_nodes`` of all constraints
    together. Memory is looked at between steps, of which the largest take some 100 MB; other
    threads of the process count, too.
    """

    time_s: float | None = None
    memory_bytes: int | None = DEFAULT_MEMORY
    solutions: int | None = 50_000_000
    expression_nodes: int | None = 2_000_000


DEFAULT_LIMITS = SolveLimits()


def resident_bytes() -> int | None:
    """The memory of this process that is in use; None where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None


@dataclass(slots=True)
class Watch:
    """The limits of a computation under way, its cancellation and its progress.

    The seconds are wall clock, unless ``clock`` is another's: who orders what it finds by what was
    found in time goes by processor time (``time.thread_time``), which others do not change.
    """

    limits: SolveLimits = DEFAULT_LIMITS
    cancelled: Callable[[], bool] | None = None
    progress: Progress | None = None
    started: float = field(default_factory=time.monotonic)
    clock: Callable[[], float] = time.monotonic
    #: The memory of the process when the computation began, where the system tells.
    resident: int | None = field(default_factory=resident_bytes)
    _held: int = 0
    _looked: float = 0.0

    def tick(self, done: float | None = None) -> None:
        """LimitError past the deadline or the memory, Cancelled if asked to stop; reports
        ``done``."""
        self.look()
        limit = self.limits.time_s
        if limit is not None and self.clock() - self.started > limit:
            raise LimitError(
                Problem("", "the time limit was reached", f"{limit:g} s", "", "a longer time limit")
            )
        if done is not None and self.progress is not None:
            self.progress(done)

    def look(self) -> None:
        """Cancelled if asked to stop, LimitError if the process grew by more than the allowed
        memory; the deadline is left to the caller."""
        if self.cancelled is not None and self.cancelled():
            raise Cancelled
        now = time.monotonic()
        if self.resident is None or now - self._looked < _LOOK_EVERY_S:
            return
        self._looked = now
        resident = resident_bytes()
        if resident is not None:
            self.refuse_beyond(resident - self.resident, "the computation")

    @property
    def left_s(self) -> float | None:
        """Seconds until the deadline, at least 0; None without one."""
        limit = self.limits.time_s
        return None if limit is None else max(0.0, limit - (self.clock() - self.started))

    def hold(self, n_bytes: int, what: str) -> None:
        """Account for memory that stays; LimitError names ``what`` if it is too much."""
        self._held += n_bytes
        self.refuse_beyond(self._held, what)

    def refuse_beyond(self, n_bytes: int, what: str) -> None:
        """LimitError if this much memory may not be used."""
        limit = self.limits.memory_bytes
        if limit is not None and n_bytes > limit:
            raise LimitError(
                Problem(
                    "",
                    f"{what} would take more memory than allowed",
                    f"{n_bytes / 2**20:.0f} MiB",
                    f"at most {limit / 2**20:.0f} MiB",
                    "pin or forbid values, or allow more memory",
                )
            )


def within_processor_seconds(seconds: float) -> Watch:
    """The usual limits, and so many seconds of this thread's processor time from now."""
    limits = replace(DEFAULT_LIMITS, time_s=seconds)
    return Watch(limits, started=time.thread_time(), clock=time.thread_time)
