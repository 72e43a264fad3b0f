"""Groups of variables as tables of the combinations that their own constraints allow.

Tuning parameters fall into few groups: those of the rows of a tile, of its columns, of filters, of
channels. Within one, constraints are tight (what divides what), and a table of some hundred rows
holds all; between groups stand few constraints, on products and sums (:mod:`couplings`). Groups
are found by joining, first where the constraints leave least of all combinations.
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
MOST_JOINED = 1 << 10


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


@dataclass(frozen=True, slots=True)
class _Join:
    """What becomes of some tables with the constraints that speak of them alone."""

    parts: tuple[Table, ...]
    inside: tuple[Predicate, ...]
    table: Table

    @property
    def combinations(self) -> int:
        return prod(part.rows for part in self.parts)

    @property
    def share(self) -> float:
        """How much of all combinations is left."""
        return self.table.rows / max(1, self.combinations)


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
    known: dict[tuple[Predicate, frozenset[int]], _Join] = {}

    def join_of(predicate: Predicate) -> _Join | None:
        parts = {id(tables[name]): tables[name] for name in sorted(scopes[predicate], key=str)}
        if prod(part.rows for part in parts.values()) > MOST_JOINED:
            return None
        key = predicate, frozenset(parts)
        if key not in known:
            columns = {name for part in parts.values() for name in part.columns}
            inside = tuple(p for p in own if scopes[p] <= columns)
            known[key] = _join(tuple(parts.values()), inside, domains)
        return known[key]

    while True:
        watch.tick()
        possible = [(join, place) for place, p in enumerate(own) if (join := join_of(p))]
        if not possible:
            break
        join, place = min(possible, key=lambda pair: (pair[0].share, pair[0].combinations))
        late = [part.columns.keys() <= set(last) for part in join.parts]
        first = prod(
            part.rows for part, is_late in zip(join.parts, late, strict=True) if not is_late
        )
        if any(late) and not all(late) and join.table.rows > first:
            refused.append(own.pop(place))
            continue
        tables.update(dict.fromkeys(join.table.columns, join.table))
        done = frozenset(join.inside)
        own = [predicate for predicate in own if predicate not in done]
    found = {id(table): table for table in tables.values()}
    return Grouped(tuple(found.values()), (*own, *refused))


def _join(
    parts: tuple[Table, ...], inside: tuple[Predicate, ...], domains: Mapping[Variable, Domain]
) -> _Join:
    table = _product(parts)
    if table.rows:
        kept = all_hold(inside, domains, table.columns, table.rows)
        table = table.only(np.flatnonzero(kept))
    return _Join(parts, inside, table)


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
