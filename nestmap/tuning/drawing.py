"""Solutions of a space, drawn and changed, each with what it is expected to take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from math import inf
from random import Random

from mapper.constraint_rules.predicate import Variable
from mapper.cost.loop_cost import LoopCost
from mapper.solver.factored.suited import Point, SuitedSpace
from mapper.solver.space import Space

#: Random solutions that the first candidates are chosen from.
DRAWS = 256
#: A change frees at most so many variables.
_MOST_FREED = 3
#: Before anything is timed the cheapest are changed, so often and into so many each.
_ROUNDS = 4
_CHEAPEST = 6
_CHILDREN = 5

Key = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A solution, and the time that it is expected to take, in ms."""

    point: Point
    key: Key
    cost_ms: float
    expected_ms: float


class Drawing:
    """Different solutions of a space: ``pool`` has those that were drawn and not taken yet,
    ``keys`` all that are known."""

    def __init__(self, space: Space, cost: LoopCost, seed: int) -> None:
        self.random = Random(seed)
        self.pool: list[Drawn] = []
        self.keys: set[Key] = set()
        self._cost = cost
        self._names = tuple(name for name, _ in space.variables)

    def key(self, assignment: Mapping[Variable, int]) -> Key:
        """What tells a solution from the others."""
        return tuple(assignment[name] for name in self._names)

    def take(self, several: Iterable[Drawn]) -> None:
        """Solutions that somebody else has drawn, those that are not known."""
        for drawn in several:
            if drawn.key not in self.keys:
                self.keys.add(drawn.key)
                self.pool.append(drawn)

    def draw(self, space: SuitedSpace, count: int, factor: float = 1.0) -> None:
        """Random solutions, each equally likely; they take a ``factor`` times what they cost."""
        for _ in range(count):
            self._add(space.draw_point(self.random), factor)

    def change(self, space: SuitedSpace, point: Point, count: int, factor: float = 1.0) -> None:
        """Solutions that differ from one in few variables, and in what follows from these."""
        for _ in range(count if space.steps else 0):
            number = self.random.randint(1, min(_MOST_FREED, len(space.steps)))
            freed = self.random.sample(space.steps, number)
            self._add(space.near(point, freed, self.random), factor)

    def open(self, space: SuitedSpace) -> None:
        """What a search begins with: random solutions, and changes of the cheapest, again and
        again."""
        self.draw(space, DRAWS)
        for _ in range(_ROUNDS):
            for drawn in nsmallest(_CHEAPEST, self.pool, key=lambda d: (d.cost_ms, d.key)):
                self.change(space, drawn.point, _CHILDREN)

    def _add(self, point: Point | None, factor: float) -> None:
        if point is None or (key := self.key(point.assignment)) in self.keys:
            return
        self.keys.add(key)
        cost_ms = self._cost.ms(point.assignment)
        self.pool.append(Drawn(point, key, cost_ms, factor * cost_ms))


def opening(space: Space, solved: SuitedSpace, cost: LoopCost) -> tuple[Drawn, ...]:
    """What a search of a solved space begins with, whatever its seed."""
    drawing = Drawing(space, cost, 0)
    drawing.open(solved)
    return tuple(drawing.pool)


def cheapest_ms(space: SuitedSpace, cost: LoopCost, draws: int) -> float:
    """What the cheapest of so many random solutions costs; infinite where there is none."""
    random = Random(0)
    drawn = (space.draw_joint(random) for _ in range(draws))
    return min((cost.ms(found) for found in drawn if found is not None), default=inf)
