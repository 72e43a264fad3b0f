"""Counting a run: outcomes by kind, the best time and the time-memory front."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mapper.measurement import OUTCOME_KINDS, Outcome, Timed, outcome_kind
from mapper.pareto.front import front_of, hypervolume
from nestmap.tuning.events import State


@dataclass(frozen=True, slots=True)
class Point:
    """A right candidate with its time and the global memory that it allocates."""

    time_ms: float
    memory_bytes: int
    candidate: str
    subject_index: int


def pareto(points: list[Point]) -> list[Point]:
    """The points that no other beats in time and memory, fastest first; equals stay."""
    front: list[Point] = []
    least: int | None = None
    for point in sorted(points, key=lambda p: (p.time_ms, p.memory_bytes, p.candidate)):
        equal = bool(front) and (point.time_ms, point.memory_bytes) == (
            front[-1].time_ms,
            front[-1].memory_bytes,
        )
        if least is None or point.memory_bytes < least or equal:
            front.append(point)
            least = point.memory_bytes
    return front


#: So many of the fastest are remembered beside the front.
_FASTEST = 16


class Tally:
    """The state of a run, kept up to date one outcome at a time."""

    def __init__(self, variants: tuple[str, ...]) -> None:
        self._variants = variants
        self._outcomes = dict.fromkeys(OUTCOME_KINDS, 0)
        self.front: list[Point] = []
        self.fastest: list[Point] = []
        self._worst = (0.0, 0)

    def add(self, subject_index: int, candidate: str, outcome: Outcome, memory_bytes: int) -> None:
        """Count one outcome."""
        time_ms = outcome.time_ms if isinstance(outcome, Timed) else None
        self.count(subject_index, candidate, outcome_kind(outcome), time_ms, memory_bytes)

    def count(
        self,
        subject_index: int,
        candidate: str,
        kind: str,
        time_ms: float | None,
        memory_bytes: int,
    ) -> None:
        """Count an outcome of which only the kind is known, and the time of a right one."""
        self._outcomes[kind] += 1
        if time_ms is not None:
            point = Point(time_ms, memory_bytes, candidate, subject_index)
            self.front = pareto([*self.front, point])
            by_time = sorted([*self.fastest, point], key=lambda p: (p.time_ms, p.candidate))
            self.fastest = by_time[:_FASTEST]
            self._worst = (
                max(self._worst[0], point.time_ms),
                max(self._worst[1], point.memory_bytes),
            )

    @property
    def tried(self) -> int:
        """Outcomes of every kind."""
        return sum(self._outcomes.values())

    @property
    def best(self) -> Point | None:
        """The fastest right candidate."""
        return self.front[0] if self.front else None

    @property
    def volume(self) -> float:
        """The share of the box between the best and the worst of both objectives (logarithms)
        that the front dominates; 1 where one point is best in both."""
        if not self.front:
            return 0.0
        low = np.log([max(self.front[0].time_ms, 1e-9), 1 + self.front[-1].memory_bytes])
        high = np.log([max(self._worst[0], 1e-9), 1 + self._worst[1]])
        # One more than the worst, so that a single point, or equal bytes, have an area too.
        high += 1e-3
        points = np.log([(max(p.time_ms, 1e-9), 1 + p.memory_bytes) for p in self.front])
        box = float(np.prod(high - low))
        reference = float(high[0]), float(high[1])
        return hypervolume(front_of(points), reference) / box

    def state(self, elapsed_s: float, left_s: float | None = None) -> State:
        """What listeners are shown."""
        best = self.best
        return State(
            tried=self.tried,
            outcomes=dict(self._outcomes),
            best_ms=best.time_ms if best else None,
            best_variant=self._variants[best.subject_index] if best else "",
            front=len(self.front),
            elapsed_s=elapsed_s,
            volume=self.volume,
            left_s=left_s,
        )
