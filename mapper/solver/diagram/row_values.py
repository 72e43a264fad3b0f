"""Terms for many assignments at once, given as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.constraint_rules.predicate import IntTerm, Predicate, Variable
from mapper.solver.diagram.columns import Key, Level, is_array
from mapper.solver.diagram.expression import Graph

Array = NDArray[Any]


def values_of(
    parts: Sequence[Predicate | IntTerm],
    domains: Mapping[Variable, tuple[int, ...]],
    columns: Mapping[Variable, Array],
    rows: int,
) -> list[Array]:
    """The value of each term, or truth of each predicate, in each row.

    They speak of the columns' variables only. Each result has shape ``(rows,)``; of objects
    (Python's integers) where 64 bits may not suffice.
    """
    names = [name for name in columns if len(domains[name]) > 1]
    graph = Graph(dict(domains), names)
    roots = [graph.enter(part) for part in parts]
    wide = any(node.wide for node in graph.nodes)
    known: dict[Key, Array] = {}
    for name in names:
        column = columns[name].reshape(rows, 1)
        known[graph.enter(name)] = column.astype(object) if wide else column
    level = Level(graph, len(names) - 1, known, np.zeros((1, 1), np.int64), wide)
    found: list[Array] = []
    # Divisors that a guard excludes are divided by all the same, and not looked at.
    with np.errstate(divide="ignore", over="ignore"):
        for root in roots:
            value = level.get(root)
            if is_array(value):
                found.append(np.broadcast_to(value, (rows, 1)).reshape(rows))
            else:
                found.append(np.full(rows, value))
    return found
