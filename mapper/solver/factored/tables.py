"""Groups of variables as tables of the combinations that their own constraints allow.

Tuning parameters fall into few groups: those of the rows of a tile, of its columns, of filters, of
channels. Within one, constraints are tight (what divides what), and a table of some hundred rows
holds all; between groups stand few constraints, on products and sums (:mod:`couplings`). Groups
are found by joining, as "Join Ordering" in databases does it, the smallest product first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.constraint_rules.predicate import Predicate, Variable, variables
from mapper.solver.diagram.layers import as_array
from mapper.solver.diagram.rows import all_hold
from mapper.solver.limits import Watch
from mapper.solver.space import Domain

Array = NDArray[Any]
#: Two groups become one where they have at most so many combinations.
MOST_JOINED = 1 << 14


@dataclass(frozen=True, slots=True)
class Table:
    """Combinations of the values of some variables: columns of equal length."""

    columns: Mapping[Variable, Array]
    rows: int

    def only(self, rows: Array) -> Table:
        """Some of the rows."""
        return Table({name: column[rows] for name, column in self.columns.items()}, len(rows))


@dataclass(frozen=True, slots=True)
class Grouped:
    """Tables that share no variable, and the constraints that speak of several."""

    tables: tuple[Table, ...]
    couplings: tuple[Predicate, ...]


def grouped(
    entries: Sequence[tuple[Variable, Domain]],
    predicates: Sequence[Predicate],
    scopes: Mapping[Predicate, frozenset[Variable]],
    watch: Watch,
) -> Grouped:
    """Variables in tables; ``scopes`` are the entries' variables that a predicate depends on.

    A predicate whose scope has variables that it does not name itself is always a coupling.
    """
    domains = dict(entries)
    tables: dict[Variable, Table] = {}
    for name, domain in entries:
        tables[name] = Table({name: as_array(domain)}, len(domain))
    left = list(predicates)
    while True:
        watch.tick()
        best: tuple[int, int] | None = None
        for place, predicate in enumerate(left):
            if not scopes[predicate] or scopes[predicate] != variables(predicate):
                continue
            together = {id(tables[name]): tables[name] for name in scopes[predicate]}
            size = prod(table.rows for table in together.values())
            if size <= MOST_JOINED and (best is None or size < best[0]):
                best = size, place
        if best is None:
            break
        scope = scopes[left[best[1]]]
        joined = _product(list({id(tables[name]): tables[name] for name in scope}.values()))
        inside = [p for p in left if p and scopes[p] == variables(p) <= joined.columns.keys()]
        kept = all_hold(inside, domains, joined.columns, joined.rows) if joined.rows else None
        table = joined if kept is None else joined.only(np.flatnonzero(kept))
        tables.update(dict.fromkeys(joined.columns, table))
        done = set(inside)
        left = [predicate for predicate in left if predicate not in done]
    found = {id(table): table for table in tables.values()}
    return Grouped(tuple(found.values()), tuple(left))


def _product(tables: Sequence[Table]) -> Table:
    """All combinations of rows."""
    rows = prod(table.rows for table in tables)
    columns: dict[Variable, Array] = {}
    inner = rows
    for table in tables:
        outer = rows // (inner or 1)
        inner = inner // table.rows if table.rows else 0
        for name, column in table.columns.items():
            columns[name] = np.tile(np.repeat(column, inner), outer)
    return Table(columns, rows)
