"""Classes of all blocks put together: what choices of all codes demand of parameters and sizes.

Codes of different blocks meet in parameters only. Most of what they demand there speaks of one
parameter (a map is a vector of four where ``v = 4``), so that choices which contradict each other
are seen at once, and the maps that must agree are in effect one code, whose owner is the parameter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mapper.constraint_rules.evaluation import evaluate
from mapper.constraint_rules.predicate import FALSE, Predicate, Variable, variables
from mapper.errors import LimitError, Problem
from mapper.solver.diagram.blocks import Block, CodeClass
from mapper.solver.diagram.compile import conjuncts
from mapper.solver.limits import Watch
from mapper.solver.space import Domain

#: Of each block the number of a class.
Choice = tuple[int, ...]
# More demands than these are not told apart.
_MOST = 1 << 16


@dataclass(frozen=True, slots=True)
class Demand:
    """``allowed`` are the values left to some variables, ``rest`` what ties several."""

    allowed: frozenset[tuple[Variable, Domain]]
    rest: frozenset[Predicate]


NO_DEMAND = Demand(frozenset(), frozenset())


@dataclass(frozen=True, slots=True)
class _Way:
    """A class of one block that leads from the demand of the blocks before to another one.

    ``paths`` choices of codes are of the class, ``ways`` of all blocks so far.
    """

    before: Demand
    place: int
    paths: int
    ways: int


class Combined:
    """All choices of codes by what they demand; ``ways`` has how many choices make a demand.

    LimitError where there are too many demands.
    """

    def __init__(
        self, blocks: Sequence[Block], domains: Mapping[Variable, Domain], watch: Watch
    ) -> None:
        self._domains = domains
        self._read: dict[CodeClass, Demand | None] = {}
        self._steps: list[dict[Demand, list[_Way]]] = []
        ways = {NO_DEMAND: 1}
        for block in blocks:
            found: dict[Demand, list[_Way]] = {}
            for before, number in ways.items():
                watch.tick()
                for place, code_class in enumerate(block.classes):
                    after = self._joined(before, code_class)
                    if after is not None:
                        paths = code_class.paths
                        way = _Way(before, place, paths, number * paths)
                        found.setdefault(after, []).append(way)
            _refuse_beyond(len(found))
            self._steps.append(found)
            ways = {demand: sum(way.ways for way in leading) for demand, leading in found.items()}
        self.ways: Mapping[Demand, int] = ways

    def _joined(self, before: Demand, code_class: CodeClass) -> Demand | None:
        """Both demands; None if they contradict each other."""
        if code_class not in self._read:
            self._read[code_class] = demand_of(code_class.residual, self._domains)
        own = self._read[code_class]
        if own is None:
            return None
        if not own.allowed:
            return Demand(before.allowed, before.rest | own.rest) if own.rest else before
        allowed = dict(before.allowed)
        for name, values in own.allowed:
            kept = tuple(v for v in allowed.get(name, values) if v in values)
            if not kept:
                return None
            allowed[name] = kept
        return Demand(frozenset(allowed.items()), before.rest | own.rest)

    def choice_at(self, demand: Demand, rank: int) -> Choice:
        """Classes that make a demand; of its :attr:`ways` those with this number."""
        found: list[int] = []
        for step in reversed(self._steps):
            for way in step[demand]:
                if rank < way.ways:
                    break
                rank -= way.ways
            else:
                raise AssertionError(rank)
            found.append(way.place)
            rank //= way.paths
            demand = way.before
        return tuple(reversed(found))

    def choices(self, demand: Demand) -> Iterator[Choice]:
        """All classes that make a demand, each combination once."""
        return self._choices(demand, len(self._steps))

    def _choices(self, demand: Demand, blocks: int) -> Iterator[Choice]:
        if not blocks:
            yield ()
            return
        for way in self._steps[blocks - 1][demand]:
            for earlier in self._choices(way.before, blocks - 1):
                yield (*earlier, way.place)


def _refuse_beyond(found: int) -> None:
    if found > _MOST:
        raise LimitError(
            Problem("", "the schedules demand too much that differs to be counted", f"{found}",
                    f"{_MOST}", "pin or forbid schedules")
        )  # fmt: skip


def demand_of(predicates: Iterable[Predicate], domains: Mapping[Variable, Domain]) -> Demand | None:
    """What predicates demand together; None if they cannot hold."""
    allowed: dict[Variable, Domain] = {}
    rest: set[Predicate] = set()
    for predicate in (part for p in predicates for part in conjuncts(p)):
        names = variables(predicate)
        if predicate == FALSE:
            return None
        if len(names) != 1:
            rest.add(predicate)
            continue
        (name,) = names
        values = allowed.get(name, domains[name])
        kept = tuple(value for value in values if evaluate(predicate, {name: value}))
        if not kept:
            return None
        allowed[name] = kept
    narrower = {(n, values) for n, values in allowed.items() if values != domains[n]}
    return Demand(frozenset(narrower), frozenset(rest))
