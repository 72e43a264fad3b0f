"""What is known where an expression is evaluated: the guards that come before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mapper.ast_model.nodes import Relation
from mapper.constraint_rules.predicate import (
    And,
    Compare,
    IntConst,
    Member,
    Not,
    Or,
    ParameterVariable,
    Predicate,
    negate,
)

_ABOVE = (Relation.GT, Relation.GE)
_BELOW = (Relation.LT, Relation.LE)
# Beyond every value of a parameter.
_UNBOUNDED = 2**64
# The latest guards; more of them only make for longer predicates.
_MOST_FACTS = 32


@dataclass(frozen=True, slots=True)
class Known:
    """What holds wherever the expression at hand is evaluated at all.

    ``facts`` are the latest; ``bounds`` say of parameters what all facts say of them.
    """

    facts: tuple[Predicate, ...] = ()
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])

    def and_also(self, fact: Predicate) -> Known:
        """This, and the fact."""
        match fact:
            case And(parts):
                facts = parts
            case Not(Or(parts)):
                facts = tuple(negate(part) for part in parts)
            case _:
                facts = (fact,)
        bounds = dict(self.bounds)
        for part in facts:
            _narrow(bounds, part)
        return Known((*self.facts, *facts)[-_MOST_FACTS:], bounds)


def _narrow(bounds: dict[str, tuple[int, int]], fact: Predicate) -> None:
    """What a comparison of a parameter with a number leaves of it."""
    match fact:
        case Member(ParameterVariable(name), values):
            low, high = min(values), max(values)
        case Compare(relation, ParameterVariable(name), IntConst(value)):
            low = value + (relation is Relation.GT) if relation in _ABOVE else -_UNBOUNDED
            high = value - (relation is Relation.LT) if relation in _BELOW else _UNBOUNDED
        case Compare(relation, IntConst(value), ParameterVariable(name)):
            low = value + (relation is Relation.LT) if relation in _BELOW else -_UNBOUNDED
            high = value - (relation is Relation.GT) if relation in _ABOVE else _UNBOUNDED
        case _:
            return
    before = bounds.get(name, (-_UNBOUNDED, _UNBOUNDED))
    bounds[name] = max(before[0], low), min(before[1], high)
