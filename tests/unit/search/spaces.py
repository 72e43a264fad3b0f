"""Small spaces and devices that tests of strategies share."""

from __future__ import annotations

import numpy as np

from mapper.ast_model.nodes import Relation
from mapper.constraint_rules.predicate import ParameterVariable, Variable, compare, multiply
from mapper.constraint_rules.rule import NESTMAP, Constraint, Provenance
from mapper.search.strategy import Choice, Outcome, Strategy
from mapper.solver.space import Space

A, B, C = (ParameterVariable(name) for name in "abc")


def limited_space(limit: int = 256) -> Space:
    """Three sizes of which the product of the first two is limited: 8 x 8 x 4 at most."""
    powers = tuple(2**n for n in range(8))
    variables: tuple[tuple[Variable, tuple[int, ...]], ...] = (
        (A, powers),
        (B, powers),
        (C, (1, 2, 3, 4)),
    )
    predicate = compare(Relation.LE, multiply(A, B), limit)
    constraint = Constraint(
        "space/1", "space", (), predicate, Provenance(NESTMAP, ""), None, "a * b is limited", ""
    )
    return Space(variables, (constraint,))


def time_of(choice: Choice) -> float:
    """A valley along a * b = 64 with its floor at (16, 4, 3): 1 ms there, more elsewhere."""
    a, b, c = (np.log2(value) for value in choice)
    return float(np.exp(0.5 * abs(a + b - 6) + 0.2 * abs(a - 4) + 0.3 * abs(c - np.log2(3))))


def outcome_at(choice: Choice) -> Outcome:
    """The time, bytes that grow as it falls; a = 128 fails."""
    memory = 1000 * choice[2]
    return Outcome(None if choice[0] == 128 else time_of(choice), memory)


def run(strategy: Strategy, count: int, batch: int = 1) -> list[Choice]:
    """Ask and tell until ``count`` candidates are known or no more come."""
    found: list[Choice] = []
    while len(found) < count:
        asked = strategy.ask(min(batch, count - len(found)))
        if not asked:
            break
        found += asked
        strategy.tell([(choice, outcome_at(choice)) for choice in asked])
    return found
