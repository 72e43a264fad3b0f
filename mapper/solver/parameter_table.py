"""Tuning parameters as tables: the combinations of those that a class speaks of, with weights.

Classes that mention the same parameters share a table, and classes that demand the same share
its columns: for each demand on a local size, the set of values that it allows in each row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.constraint_rules.predicate import (
    ParameterVariable,
    Predicate,
    Variable,
    variables,
)
from mapper.constraint_rules.rule import Constraint, Provenance
from mapper.solver.demands import ANY_SIZE, Demand, parameter_terms
from mapper.solver.diagram.compile import compile_arithmetic
from mapper.solver.diagram.grouping import group_rows
from mapper.solver.diagram.layers import Diagram, SolutionTable, prefix_counts
from mapper.solver.diagram.row_values import values_of
from mapper.solver.diagram.rows import all_hold
from mapper.solver.limits import Watch
from mapper.solver.size_sets import EXACT, SizeSets
from mapper.solver.space import Domain, Space

Array = NDArray[Any]
# So many rows, or rows times values, are looked at at once.
_CHUNK = 1 << 20
# A table beyond this would take too long and too much memory.
_MOST_ROWS = 1 << 24
# So many bytes for each row are expected to be kept for demands and conditions.
_DEMANDS = 64
# Numbers of combinations are added up in a table of them up to this many for each row.
_DENSE = 4
_DENSE_FLOOR = 1 << 18
_LARGEST_KEY = 1 << 62
_SOURCE = Provenance("what parameters demand of each other", "")


class Parameters:
    """The tuning parameters of a space, with what ties them alone.

    ``shared`` are those that several parts of the space speak of; the ``universe`` is every
    combination of their values that the others allow.
    """

    def __init__(
        self,
        space: Space,
        loose: Sequence[Predicate],
        shared: Sequence[Variable],
        watch: Watch,
    ) -> None:
        entries = [e for e in space.variables if isinstance(e[0], ParameterVariable)]
        names = {variable for variable, _ in entries}
        inside = [as_constraint(p) for p in loose if variables(p) <= names]
        self.space = Space(tuple(entries), tuple(inside))
        self.shared = tuple(shared)
        self._domains = space.domains
        self._watch = watch
        self._some: dict[int, ParameterTable] = {}

    @cached_property
    def universe(self) -> SolutionTable:
        """Every combination of the shared parameters; one empty row if there are none."""
        if not self.space.variables:
            return SolutionTable((), (), 1)
        diagram = compile_arithmetic(self.space, self._watch, self.shared)
        if not diagram.count:
            return SolutionTable((), (), 0)
        decided = sum(layer.variable in self.shared for layer in diagram.layers)
        return diagram.prefixes(decided, self._watch)[0]

    @cached_property
    def diagram(self) -> Diagram:
        """All choices of the tuning parameters that their own rules allow."""
        return compile_arithmetic(self.space, self._watch)

    def universe_rows(self, table: SolutionTable) -> Array:
        """For each row of a table with all shared parameters, its row in the universe."""
        theirs = self.keys(self.universe, self.shared)
        order = np.argsort(theirs)
        found = np.searchsorted(theirs[order], self.keys(table, self.shared))
        return order[found]

    def keys(self, table: SolutionTable, names: Sequence[Variable]) -> Array:
        """One integer for each row, equal where the named columns are."""
        key: Array = np.zeros(table.rows, np.int64)
        for name in names:
            domain = np.array(self._domains[name])
            column = table.columns[table.variables.index(name)]
            key = key * len(domain) + np.searchsorted(domain, column)
        return key

    def only_shared(self) -> ParameterTable:
        """The universe itself, each row once."""
        table = self.universe
        ways = np.ones(table.rows, np.int64)
        return ParameterTable(
            self._domains, table, ways, np.arange(table.rows), table.rows, self._watch
        )

    def some(self, number: int) -> ParameterTable:
        """About so many choices of all parameters, spread over the rows of the universe.

        The same ones each time.
        """
        if number not in self._some:
            self._some[number] = self._drawn(number)
        return self._some[number]

    def _drawn(self, number: int) -> ParameterTable:
        diagram = compile_arithmetic(self.space, self._watch, self.shared)
        if not diagram.count:
            return self._empty()
        decided = sum(layer.variable in self.shared for layer in diagram.layers)
        _, ways, states = diagram.prefixes(decided, self._watch)
        random = Random(number)
        each = max(1, number // len(states))
        ranks = [random.randrange(int(own)) for own in ways for _ in range(each)]
        before = np.cumsum(ways.astype(object)) - ways
        rows = np.repeat(np.arange(len(states)), each)
        table = diagram.at_ranks([int(before[r]) + k for r, k in zip(rows, ranks, strict=True)])
        ones = np.ones(table.rows, np.int64)
        places = self.universe_rows(table)
        return ParameterTable(
            self._domains, table, ones, places, table.rows, self._watch, sampled=True
        )

    def _empty(self) -> ParameterTable:
        nothing = SolutionTable((), (), 0)
        return ParameterTable(self._domains, nothing, _NONE, _NONE, 0, self._watch)

    def table(self, mentioned: frozenset[Variable]) -> ParameterTable | None:
        """Combinations of the mentioned and the shared parameters, and how many choices of all
        go with each; None where these are too many."""
        first = mentioned | set(self.shared)
        diagram = compile_arithmetic(self.space, self._watch, first)
        if not diagram.count:
            return self._empty()
        decided = sum(layer.variable in first for layer in diagram.layers)
        rows = prefix_counts(diagram.layers[:decided], diagram.count)
        memory = self._watch.limits.memory_bytes
        if rows > _MOST_ROWS or (memory is not None and rows * 16 * (decided + 4) > memory):
            return None
        table, ways, states = diagram.prefixes(decided, self._watch)
        rest = _Rest(diagram, decided, states)
        self._watch.tick()
        places = self.universe_rows(table)
        self._watch.tick()
        return ParameterTable(self._domains, table, ways, places, diagram.count, self._watch, rest)


_NONE: Array = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class _Rest:
    """How the parameters that a table leaves out go on from its rows."""

    diagram: Diagram
    decided: int
    states: Array


@dataclass(frozen=True, slots=True)
class Combinations:
    """Different rows ``(universe row, set of each demand)``, with the number of ``ways`` to
    choose all parameters; columns of equal length."""

    places: Array
    sets: dict[Demand, Array]
    ways: Array

    @property
    def n_bytes(self) -> int:
        """The memory of the columns."""
        columns = (self.places, self.ways, *self.sets.values())
        return sum(column.nbytes for column in columns)


class ParameterTable:
    """Rows of parameters; each with a row of the universe and a number of ``ways``."""

    def __init__(
        self,
        domains: Mapping[Variable, Domain],
        table: SolutionTable,
        ways: Array,
        places: Array,
        bound: int,
        watch: Watch,
        rest: _Rest | None = None,
        *,
        sampled: bool = False,
    ) -> None:
        self.rows = table.rows
        #: Whether it is a few of the rows only.
        self.sampled = sampled
        # At least the sum of all ways.
        self.bound = bound
        self._domains = domains
        self._columns = {
            name: _small(column)
            for name, column in zip(table.variables, table.columns, strict=True)
        }
        self._ways = _small(ways)
        self._places = _small(places)
        self._universe = int(self._places.max(initial=0)) + 1
        self._watch = watch
        self._rest = rest
        self._sets: dict[Demand, tuple[Array, Array]] = {}
        self._valid: dict[frozenset[Predicate], Array | None] = {}

    @property
    def n_bytes(self) -> int:
        """The memory that it takes, with what is going to be computed for it, about."""
        kept = [*self._columns.values(), self._ways, self._places]
        return sum(column.nbytes for column in kept) + self.rows * (4 + _DEMANDS)

    def combinations(
        self, conditions: frozenset[Predicate], demands: Sequence[Demand], sets: SizeSets
    ) -> Combinations:
        """The different rows that satisfy conditions on parameters."""
        valid = self._rows_with(conditions)
        distinct = list(dict.fromkeys(demands))
        columns = [self._sets_of(demand, sets) for demand in distinct]
        self._watch.tick()
        size = self._universe
        for _, numbers in columns:
            size *= max(1, len(numbers))
        if size > _LARGEST_KEY:
            return self._grouped(valid, distinct, columns)
        key = self._places.astype(np.int32 if size < 1 << 31 else np.int64)
        for column, numbers in columns:
            if len(numbers) > 1:
                key *= len(numbers)
                key += column
        key = _taken(key, valid)
        ways = _taken(self._ways, valid)
        if size <= max(_DENSE * len(key), _DENSE_FLOOR):
            total = exact_sums(key, ways, size, self.bound)
            present = np.flatnonzero(total)
            total = total[present]
        else:
            present, group = np.unique(key, return_inverse=True)
            total = exact_sums(group.reshape(len(key)), ways, len(present), self.bound)
        found: dict[Demand, Array] = {}
        for demand, (_, numbers) in zip(reversed(distinct), reversed(columns), strict=True):
            if len(numbers) > 1:
                present, local = np.divmod(present, len(numbers))
                found[demand] = numbers[local].astype(np.int32)
            else:
                found[demand] = np.full(len(present), numbers[0] if len(numbers) else 0, np.int32)
        return Combinations(present.astype(np.int32), found, total)

    def _grouped(
        self,
        valid: Array | None,
        demands: Sequence[Demand],
        columns: Sequence[tuple[Array, Array]],
    ) -> Combinations:
        """As :meth:`combinations`, where one integer does not tell all rows apart."""
        places = _taken(self._places, valid)
        numbers = [_taken(numbers[column], valid) for column, numbers in columns]
        first, group = group_rows([places, *numbers], len(places))
        ways = exact_sums(group, _taken(self._ways, valid), len(first), self.bound)
        sets = {
            demand: column[first].astype(np.int32)
            for demand, column in zip(demands, numbers, strict=True)
        }
        return Combinations(places[first], sets, ways)

    def weights(
        self,
        conditions: frozenset[Predicate],
        place: int,
        wanted: Mapping[Demand, int],
        sets: SizeSets,
    ) -> tuple[Array, Array]:
        """The rows with these sets in one row of the universe, and their ways."""
        valid = self._rows_with(conditions)
        rows = np.flatnonzero(_taken(self._places, valid) == place)
        rows = rows if valid is None else valid[rows]
        for demand, number in wanted.items():
            column, numbers = self._sets_of(demand, sets)
            local = int(np.flatnonzero(numbers == number)[0])
            rows = rows[column[rows] == local]
        return rows, self._ways[rows]

    def assignment(self, row: int, rank: int) -> dict[Variable, int]:
        """The parameters of a row; ``rank``, from 0 below its ways, says how the others go on."""
        found = {name: int(column[row]) for name, column in self._columns.items()}
        if self._rest is not None:
            rest = self._rest
            state = rest.states[row : row + 1]
            later = rest.diagram.completions(rest.decided, state, [rank])
            found |= {name: int(column[0]) for name, column in later.items()}
            found |= rest.diagram.fixed
        return found

    def _rows_with(self, conditions: frozenset[Predicate]) -> Array | None:
        """The rows that satisfy conditions; None for all."""
        if conditions not in self._valid:
            truths = [
                all_hold(tuple(conditions), dict(self._domains), columns, rows)
                for columns, rows in self._chunks(
                    frozenset[Variable]().union(*map(variables, conditions))
                )
            ]
            truth = np.concatenate(truths) if truths else np.zeros(0, np.bool_)
            rows = np.flatnonzero(truth).astype(np.int32)
            self._valid[conditions] = None if len(rows) == self.rows else rows
        return self._valid[conditions]

    def _chunks(self, names: frozenset[Variable]) -> Iterator[tuple[dict[Variable, Array], int]]:
        """Columns to compute with, of some rows at a time: wide ones of all would be large."""
        columns = {name: column for name, column in self._columns.items() if name in names}
        for start in range(0, self.rows, _CHUNK):
            self._watch.tick()
            stop = start + _CHUNK
            part = {name: _wide(column[start:stop]) for name, column in columns.items()}
            yield part, min(_CHUNK, self.rows - start)

    def _sets_of(self, demand: Demand, sets: SizeSets) -> tuple[Array, Array]:
        """For each row the set that a demand allows, numbered from 0, and these sets' numbers."""
        found = self._sets.get(demand)
        if found is not None:
            return found
        terms = parameter_terms(demand)
        names = frozenset[Variable]().union(*map(variables, terms))
        pieces: list[list[Array]] = [[] for _ in terms]
        for columns, rows in self._chunks(names):
            for piece, values in zip(
                pieces, values_of(terms, self._domains, columns, rows), strict=True
            ):
                piece.append(values)
        if self.rows and terms:
            first, group = group_rows([np.concatenate(piece) for piece in pieces], self.rows)
        else:
            rows = min(1, self.rows)
            first, group = np.zeros(rows, np.intp), np.zeros(self.rows, np.intp)
        numbers = self._allowed(demand, names, first, sets)
        distinct, local = np.unique(numbers, return_inverse=True)
        small = np.min_scalar_type(max(1, len(distinct)))
        column = local.reshape(len(numbers)).astype(small)[group]
        found = self._sets[demand] = column, distinct
        return found

    def _allowed(
        self, demand: Demand, names: frozenset[Variable], rows: Array, sets: SizeSets
    ) -> NDArray[np.int64]:
        """The number of the set that a demand allows in some rows."""
        n_values = len(sets.values)
        values = np.array(sets.values)
        domains = {**self._domains, ANY_SIZE: sets.values}
        at_once = max(1, _CHUNK // max(1, n_values))
        found: list[Array] = [np.zeros(0, np.int64)]
        for start in range(0, len(rows), at_once):
            self._watch.tick()
            part = rows[start : start + at_once]
            columns: dict[Variable, Array] = {
                name: np.repeat(_wide(self._columns[name][part]), n_values)
                for name in self._columns
                if name in names
            }
            columns[ANY_SIZE] = np.tile(values, len(part))
            allowed = all_hold(tuple(demand), domains, columns, len(part) * n_values)
            found.append(sets.numbers(allowed.reshape(len(part), n_values)))
        return np.concatenate(found)


def exact_sums(groups: Array, weights: Array, number: int, bound: int) -> Array:
    """The sum of each group's weights, exact; ``bound`` is at least the sum of all."""
    if bound < EXACT and weights.dtype != object:
        found = np.bincount(groups, weights=weights, minlength=number)
        return found.astype(np.int64)
    wide = bound >= _LARGEST_KEY or weights.dtype == object
    total = np.zeros(number, object if wide else np.int64)
    np.add.at(total, groups, weights.astype(object) if wide else weights)
    return total


def as_constraint(predicate: Predicate) -> Constraint:
    """A predicate as a constraint of a space."""
    return Constraint("residual", "residual", (), predicate, _SOURCE, None, "", "")


def _small(column: Array) -> Array:
    """The column in the smallest integers that hold it; Python's stay."""
    if column.dtype == object or not len(column):
        return column
    least = np.result_type(
        np.min_scalar_type(int(column.min())), np.min_scalar_type(int(column.max()))
    )
    return column.astype(least) if least.kind in "iu" else column


def _wide(column: Array) -> Array:
    """The column in integers to compute with."""
    return column if column.dtype == object else column.astype(np.int64)


def _taken(column: Array, rows: Array | None) -> Array:
    return column if rows is None else column[rows]
