"""Predicates for many assignments at once, given as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.constraint_rules.predicate import Predicate, Variable
from mapper.solver.diagram.columns import Key, Level, is_array
from mapper.solver.diagram.expression import Graph

Array = NDArray[Any]


def all_hold(
    predicates: Sequence[Predicate],
    domains: Mapping[Variable, tuple[int, ...]],
    columns: Mapping[Variable, Array],
    rows: int,
) -> NDArray[np.bool_]:
    """For each row whether every predicate holds; they speak of the columns' variables only."""
    names = [name for name in columns if len(domains[name]) > 1]
    graph = Graph(dict(domains), names)
    roots = [graph.enter(predicate) for predicate in predicates]
    wide = any(node.wide for node in graph.nodes)
    known: dict[Key, Array] = {}
    for name in names:
        column = columns[name].reshape(rows, 1)
        known[graph.enter(name)] = column.astype(object) if wide else column
    level = Level(graph, len(names) - 1, known, np.zeros((1, 1), np.int64), wide)
    found = np.ones((rows, 1), np.bool_)
    for root in roots:
        value = level.get(root)
        if is_array(value):
            found = found & value.astype(np.bool_)
        elif not value:
            return np.zeros(rows, np.bool_)
    return found.reshape(rows)
