"""Solutions of a space, drawn and changed, each with what it is expected to take."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from heapq import nsmallest
from math import inf
from random import Random

from mapper.constraint_rules.predicate import Variable
from mapper.cost.loop_cost import LoopCost
from mapper.solver.factored.neighbours import Neighbours
from mapper.solver.factored.suited import SuitedSpace
from mapper.solver.limits import Watch
from mapper.solver.space import Space
from nestmap.tuning.fewer_sizes import solved_for_search

#: Random solutions that the first candidates are chosen from.
DRAWS = 256
#: A change frees at most so many variables; of what that gives so many are taken at once. Some
#: changes are of codes, to those of another solution.
_MOST_FREED = 3
_AT_ONCE = 2
_OF_CODES = 0.125
#: Before anything is timed the cheapest are changed, so often and into so many each.
_ROUNDS = 4
_CHEAPEST = 6
_CHILDREN = 5

Key = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A solution, and the time that it is expected to take, in ms."""

    assignment: Mapping[Variable, int]
    key: Key
    cost_ms: float
    expected_ms: float


class Drawing:
    """Different solutions of a space: ``pool`` has those that were drawn and not taken yet,
    ``keys`` all that are known. In what is ``idle`` solutions need not differ."""

    def __init__(
        self, space: Space, cost: LoopCost, seed: int, idle: Collection[Variable] = ()
    ) -> None:
        self.random = Random(seed)
        self.pool: list[Drawn] = []
        self.keys: set[Key] = set()
        self._cost = cost
        self._idle = frozenset(idle)
        self._names = tuple(name for name, _ in space.variables if name not in self._idle)

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
            self._add(space.draw_joint(self.random), factor)

    def change(
        self,
        neighbours: Neighbours,
        solution: Mapping[Variable, int],
        count: int,
        factor: float = 1.0,
    ) -> None:
        """Up to so many solutions that differ from one in few values, and in what follows from
        these, or in codes; fewer where these are hard to find."""
        random = self.random
        steps = [name for name in neighbours.free(solution) if name not in self._idle]
        known = len(self.keys)
        for _ in range(count):
            if self.pool and random.random() < _OF_CODES:
                other = random.choice(self.pool).assignment
                self._add(neighbours.recoded(solution, other), factor)
            elif steps:
                freed = random.sample(steps, random.randint(1, min(_MOST_FREED, len(steps))))
                for found in neighbours.near(solution, freed, _AT_ONCE, random):
                    self._add(found, factor)
            if len(self.keys) >= known + count:
                break

    def open(self, opened: Opened, draws: int = DRAWS) -> None:
        """What a search begins with: so many random solutions, and changes of the cheapest, again
        and again."""
        self.draw(opened.space, draws)
        for _ in range(_ROUNDS):
            for drawn in nsmallest(_CHEAPEST, self.pool, key=lambda d: (d.cost_ms, d.key)):
                self.change(opened.neighbours, drawn.assignment, _CHILDREN)

    def _add(self, assignment: Mapping[Variable, int] | None, factor: float) -> None:
        if assignment is None or (key := self.key(assignment)) in self.keys:
            return
        self.keys.add(key)
        cost_ms = self._cost.ms(assignment)
        self.pool.append(Drawn(assignment, key, cost_ms, factor * cost_ms))


@dataclass(frozen=True, slots=True)
class Opened:
    """A space that is solved for a search, perhaps with what the search begins with, whatever its
    seed."""

    space: SuitedSpace
    neighbours: Neighbours
    drawn: tuple[Drawn, ...] = ()


def solved(space: Space, watch: Watch) -> Opened:
    """A space as a search goes through it; LimitError and Cancelled as ``watch`` says."""
    return Opened(solved_for_search(space, watch), Neighbours(space, watch))


def opened(space: Space, cost: LoopCost, watch: Watch, idle: Collection[Variable] = ()) -> Opened:
    """As :func:`solved`, with solutions."""
    found = solved(space, watch)
    if not found.space.count_joint():
        return found
    drawing = Drawing(space, cost, 0, idle)
    drawing.open(found)
    return replace(found, drawn=tuple(drawing.pool))


def cheapest_ms(space: SuitedSpace, cost: LoopCost, draws: int) -> float:
    """What the cheapest of so many random solutions costs; infinite where there is none."""
    random = Random(0)
    drawn = (space.draw_joint(random) for _ in range(draws))
    return min((cost.ms(found) for found in drawn if found is not None), default=inf)
