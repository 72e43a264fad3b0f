"""Counting a run: outcomes by kind, the best time and the time-memory front."""

from __future__ import annotations

from dataclasses import dataclass

from mapper.measurement import OUTCOME_KINDS, Outcome, Timed, outcome_kind
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


class Tally:
    """The state of a run, kept up to date one outcome at a time."""

    def __init__(self, variants: tuple[str, ...]) -> None:
        self._variants = variants
        self._outcomes = dict.fromkeys(OUTCOME_KINDS, 0)
        self.front: list[Point] = []

    def add(self, subject_index: int, candidate: str, outcome: Outcome, memory_bytes: int) -> None:
        """Count one outcome."""
        self._outcomes[outcome_kind(outcome)] += 1
        if isinstance(outcome, Timed):
            point = Point(outcome.time_ms, memory_bytes, candidate, subject_index)
            self.front = pareto([*self.front, point])

    @property
    def tried(self) -> int:
        """Outcomes of every kind."""
        return sum(self._outcomes.values())

    @property
    def best(self) -> Point | None:
        """The fastest right candidate."""
        return self.front[0] if self.front else None

    def state(self, elapsed_s: float) -> State:
        """What listeners are shown."""
        best = self.best
        return State(
            tried=self.tried,
            outcomes=dict(self._outcomes),
            best_ms=best.time_ms if best else None,
            best_variant=self._variants[best.subject_index] if best else "",
            front=len(self.front),
            elapsed_s=elapsed_s,
        )
