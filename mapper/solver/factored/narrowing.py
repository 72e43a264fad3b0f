"""Values that single constraints forbid, taken away before anything is built.

What suits a device mostly says what one code is. Each value that goes simplifies the constraints
that mention it, which forbids further values; in the end a few codes are open, and the predicates
over them are a fraction of what they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod

import numpy as np

from mapper.ast_model.nodes import Relation
from mapper.constraint_rules.predicate import (
    FALSE,
    TRUE,
    CodeVariable,
    Compare,
    IntTerm,
    Member,
    Predicate,
    Truth,
    Variable,
    negate,
    variables,
)
from mapper.constraint_rules.rewriting import Rewriter
from mapper.constraint_rules.rule import Constraint, Provenance
from mapper.constraint_rules.suits.suit import PREFIX
from mapper.solver.diagram.compile import conjuncts
from mapper.solver.diagram.grid import Grid, TooManyCombinationsError
from mapper.solver.space import Domain, Space

_SOURCE = Provenance("what is left of the constraints", "")
# Conditions on so many codes are looked at, and for so many combinations.
_MOST_CODES = 4
_MOST = 1 << 10


def is_suited(space: Space) -> bool:
    """Whether rules of suitability are among the constraints."""
    return any(constraint.rule.startswith(PREFIX) for constraint in space.constraints)


def without_forbidden(space: Space, tick: Callable[[], object]) -> Space:
    """The same solutions with fewer values and smaller constraints, for a solver of its own.

    What a code that no value is left to would multiply is not there any more, and common factors
    of quotients are cancelled, so that terms stay in the range of a solver.
    """
    found = Narrowing(space, tick)
    if found.impossible:
        return Space(space.variables, (_left("", FALSE),))
    step = Rewriter(lambda _: None, found.domains)
    demands = (_left(str(place), step.predicate(d)) for place, d in enumerate(found.demands))
    return Space(tuple(found.domains.items()), tuple(demands))


def _left(name: str, demand: Predicate) -> Constraint:
    return Constraint(name, "", (), demand, _SOURCE, None, "", "")


class Narrowing:
    """The open codes of a space with their domains, and what is left of its constraints.

    ``domains`` has every variable; in ``demands`` is nothing that holds anyway. ``impossible`` if
    some code has no value left. ``tick`` is called between steps.
    """

    def __init__(self, space: Space, tick: Callable[[], object]) -> None:
        self.domains: dict[Variable, Domain] = space.domains
        self.impossible = False
        self._tick = tick
        demands = dict.fromkeys(part for c in space.constraints for part in conjuncts(c.predicate))
        codes = frozenset(v for v, _ in space.variables if isinstance(v, CodeVariable))
        demands = self._narrowed(self._simplified(demands, codes), 1)
        self.demands = tuple(self._narrowed(demands, _MOST_CODES))

    def _narrowed(self, demands: dict[Predicate, None], most: int) -> dict[Predicate, None]:
        """What is left once no condition on so many codes takes a value away."""
        looked_at: set[Predicate] = set()
        while not self.impossible:
            self._tick()
            changed = self._narrow([d for d in demands if d not in looked_at], most)
            looked_at.update(demands)
            if not changed:
                break
            demands = self._simplified(demands, changed)
            looked_at = {d for d in looked_at if changed.isdisjoint(variables(d))}
        return demands

    def _simplified(
        self, demands: Iterable[Predicate], changed: frozenset[Variable]
    ) -> dict[Predicate, None]:
        def decided(part: Predicate | IntTerm) -> Predicate | IntTerm | None:
            # What speaks of no such code is as short as it gets.
            return part if changed.isdisjoint(variables(part)) else self._decided(part)

        step = Rewriter(decided)
        found: dict[Predicate, None] = {}
        for demand in demands:
            for part in conjuncts(step.predicate(demand)):
                if part == FALSE:
                    self.impossible = True
                elif part != TRUE:
                    found[part] = None
        return found

    def _decided(self, part: Predicate | IntTerm) -> Predicate | IntTerm | None:
        if isinstance(part, Compare):
            return self._compared(part)
        if not isinstance(part, Member):
            return None
        domain = self.domains[part.variable]
        inside = part.values.intersection(domain)
        if len(inside) == len(domain):
            return TRUE
        return Member(part.variable, inside) if inside else Truth(False)

    def _compared(self, part: Compare) -> Predicate | None:
        """Two codes of which one has one value, or no value of the other."""
        left, right = part.left, part.right
        if not isinstance(left, CodeVariable) or not isinstance(right, CodeVariable):
            return None
        if part.relation not in (Relation.EQ, Relation.NE):
            return None
        common = frozenset(self.domains[left]) & frozenset(self.domains[right])
        if not common:
            return Truth(part.relation is Relation.NE)
        for one, other in ((left, right), (right, left)):
            if len(self.domains[one]) == 1:
                same = self._decided(Member(other, common))
                assert isinstance(same, Predicate)
                return same if part.relation is Relation.EQ else negate(same)
        return None

    def _narrow(self, demands: Iterable[Predicate], most: int) -> frozenset[Variable]:
        """Take away the values of codes that a condition on at most so many codes forbids."""
        changed: set[Variable] = set()
        for demand in demands:
            names = variables(demand)
            if len(names) > most or not all(isinstance(n, CodeVariable) for n in names):
                continue
            if prod(len(self.domains[name]) for name in names) > _MOST:
                continue
            for name, domain in _supported(demand, sorted(names, key=str), self.domains).items():
                if domain != self.domains[name]:
                    self.domains[name] = domain
                    changed.add(name)
                    self.impossible = self.impossible or not domain
        return frozenset(changed)


def _supported(
    demand: Predicate, names: list[Variable], domains: Mapping[Variable, Domain]
) -> dict[Variable, Domain]:
    """Of each variable the values with which the demand can hold."""
    grid = Grid([domains[name] for name in names], {name: k for k, name in enumerate(names)}, {})
    try:
        holds, scope = grid.truth(demand)
    except TooManyCombinationsError:
        return {}
    found: dict[Variable, Domain] = {}
    for place, name in enumerate(names):
        if not scope:
            found[name] = domains[name] if holds else ()
        elif scope >> place & 1:
            others = tuple(k for k in range(len(names)) if k != place)
            kept = np.any(holds, axis=others)
            found[name] = tuple(v for v, one in zip(domains[name], kept, strict=True) if one)
    return found
