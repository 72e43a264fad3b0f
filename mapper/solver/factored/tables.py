"""Groups of variables as tables of the combinations that their own constraints allow.

Tuning parameters fall into few groups: those of the rows of a tile, of its columns, of filters, of
channels. Within one, constraints are tight (what divides what), and a table of some hundred rows
holds all; between groups stand few constraints, on products and sums (:mod:`couplings`). Groups
are found by joining, the smallest product first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
    """Combinations of the values of some variables: columns of equal length.

    Each row counts for as many solutions as ``ways`` says.
    """

    columns: Mapping[Variable, Array]
    ways: Array

    @property
    def rows(self) -> int:
        """The number of combinations."""
        return len(self.ways)

    def only(self, rows: Array) -> Table:
        """Some of the rows."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return Table(columns, self.ways[rows])


@dataclass(frozen=True, slots=True)
class Grouped:
    """Tables that share no variable, and the constraints that speak of several."""

    tables: tuple[Table, ...]
    couplings: tuple[Predicate, ...]


def free_table(name: Variable, domain: Domain) -> Table:
    """A variable with all its values."""
    return Table({name: as_array(domain)}, np.ones(len(domain), np.int64))


def grouped(
    singles: Sequence[Table],
    predicates: Sequence[Predicate],
    scopes: Mapping[Predicate, frozenset[Variable]],
    domains: Mapping[Variable, Domain],
    last: Collection[Variable],
    watch: Watch,
) -> Grouped:
    """Tables of single variables joined; ``scopes`` are the variables that a predicate depends on.

    A predicate whose scope has variables that it does not name itself is always a coupling; one
    that speaks of variables in ``last`` unless these follow from the others.
    """
    tables = {name: table for table in singles for name in table.columns}
    own: list[Predicate] = [p for p in predicates if scopes[p] and scopes[p] == variables(p)]
    refused = [p for p in predicates if p not in set(own)]
    while True:
        watch.tick()
        best: tuple[int, int] | None = None
        for place, predicate in enumerate(own):
            together = {id(tables[name]): tables[name].rows for name in scopes[predicate]}
            size = prod(together.values())
            if size <= MOST_JOINED and (best is None or size < best[0]):
                best = size, place
        if best is None:
            break
        scope = sorted(scopes[own[best[1]]], key=str)
        parts = list({id(tables[name]): tables[name] for name in scope}.values())
        joined = _product(parts)
        inside: list[Predicate] = [p for p in own if scopes[p] <= joined.columns.keys()]
        if joined.rows:
            kept = all_hold(inside, domains, joined.columns, joined.rows)
            joined = joined.only(np.flatnonzero(kept))
        late = [part.columns.keys() <= set(last) for part in parts]
        first = prod(part.rows for part, is_late in zip(parts, late, strict=True) if not is_late)
        if any(late) and not all(late) and joined.rows > first:
            refused.append(own.pop(best[1]))
            continue
        tables.update(dict.fromkeys(joined.columns, joined))
        done = frozenset(inside)
        own = [predicate for predicate in own if predicate not in done]
    found = {id(table): table for table in tables.values()}
    return Grouped(tuple(found.values()), (*own, *refused))


def _product(tables: Sequence[Table]) -> Table:
    """All combinations of rows."""
    rows = prod(table.rows for table in tables)
    columns: dict[Variable, Array] = {}
    ways: Array = np.ones(rows, np.int64)
    inner = rows
    for table in tables:
        outer = rows // (inner or 1)
        inner = inner // table.rows if table.rows else 0
        for name, column in table.columns.items():
            columns[name] = np.tile(np.repeat(column, inner), outer)
        ways = ways * np.tile(np.repeat(table.ways, inner), outer)
    return Table(columns, ways)
