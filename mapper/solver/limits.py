"""Bounds on what a solver may use, and how it learns that it has to stop.

A service gives every request a budget; whoever computes calls :meth:`Watch.tick` at least a few
times a second, which is where deadlines and cancellations take effect.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from mapper.errors import LimitError, Problem

#: Called with a fraction between 0 and 1, or a number of things done where none is known.
Progress = Callable[[float], None]


class Cancelled(Exception):
    """The caller asked to stop. Not an error of the input, so no NestmapError."""


@dataclass(frozen=True, slots=True)
class SolveLimits:
    """What one computation may use; None is unbounded.

    ``time_s`` wall-clock seconds; ``memory_bytes`` of the arrays that hold states, arcs and
    solutions; ``solutions`` that may be materialised at once; ``expression_nodes`` of all
    constraints together.
    """

    time_s: float | None = None
    memory_bytes: int | None = 2 * 2**30
    solutions: int | None = 50_000_000
    expression_nodes: int | None = 2_000_000


DEFAULT_LIMITS = SolveLimits()


@dataclass(slots=True)
class Watch:
    """The limits of a computation under way, its cancellation and its progress."""

    limits: SolveLimits = DEFAULT_LIMITS
    cancelled: Callable[[], bool] | None = None
    progress: Progress | None = None
    started: float = field(default_factory=time.monotonic)
    _held: int = 0

    def tick(self, done: float | None = None) -> None:
        """LimitError past the deadline, Cancelled if asked to stop; reports ``done``."""
        if self.cancelled is not None and self.cancelled():
            raise Cancelled
        limit = self.limits.time_s
        if limit is not None and time.monotonic() - self.started > limit:
            raise LimitError(
                Problem("", "the time limit was reached", f"{limit:g} s", "", "a longer time limit")
            )
        if done is not None and self.progress is not None:
            self.progress(done)

    @property
    def left_s(self) -> float | None:
        """Seconds until the deadline, at least 0; None without one."""
        limit = self.limits.time_s
        return None if limit is None else max(0.0, limit - (time.monotonic() - self.started))

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
