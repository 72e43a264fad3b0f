"""A contestant's turn: runs of the same, one after the other, for some seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Turn:
    """Some runs in a row: wall seconds of each; wall and CPU seconds of all together."""

    times: tuple[float, ...]
    wall_s: float
    cpu_s: float

    @property
    def cores(self) -> float:
        """How many cores were at work in the mean."""
        return self.cpu_s / max(self.wall_s, 1e-9)


def turn_of(run: Callable[[], float], seconds: float, least: int) -> Turn:
    """A turn in this process of what ``run`` does, which gives the wall seconds that it took."""
    times: list[float] = []
    processor, begun = time.process_time(), time.perf_counter()
    while len(times) < least or time.perf_counter() - begun < seconds:
        times.append(run())
    wall_s = time.perf_counter() - begun
    return Turn(tuple(times), wall_s, time.process_time() - processor)


def run_s(queue: Any, kernel: Any, groups: tuple[int, ...]) -> float:
    """Run a kernel of lone work-items once: wall seconds from the call to the result."""
    import pyopencl as cl

    started = time.perf_counter()
    cl.enqueue_nd_range_kernel(queue, kernel, groups, (1,) * len(groups))
    queue.finish()
    return time.perf_counter() - started
