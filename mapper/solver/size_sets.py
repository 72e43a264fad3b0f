"""Local sizes, each from a set of allowed values: how many combinations go together.

Given tuning parameters, what a class of codes demands of its sizes is one set of allowed values
for each; what is left ties sizes alone (a work-group's limit). That part is one diagram, through
which vectors are carried for all sets at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.constraint_rules.predicate import LocalSizeVariable, Predicate, variables
from mapper.constraint_rules.rule import Constraint, Provenance
from mapper.solver.diagram.compile import compile_arithmetic
from mapper.solver.diagram.layers import Diagram, Layer, as_array
from mapper.solver.diagram.order import bits, groups_of
from mapper.solver.limits import DEFAULT_MEMORY, Watch
from mapper.solver.space import Space

Array = NDArray[Any]
Truths = NDArray[np.bool_]
SizeEntry = tuple[LocalSizeVariable, tuple[int, ...]]
# Sums below this are exact in the floating-point numbers whose matrix products are fast.
EXACT = 1 << 53
# Counts for pairs of sets are kept up to this part of the allowed memory; those for more are
# computed again.
_PAIRS = 16
_SOURCE = Provenance("what ties local sizes", "")


class SizeSets:
    """Sets of allowed local sizes, numbered; ``values`` are all that any size may have."""

    def __init__(self, entries: Sequence[SizeEntry]) -> None:
        self.values = tuple(sorted({value for _, domain in entries for value in domain}))
        self._numbers: dict[bytes, int] = {}
        self._rows: list[Truths] = []
        self._table: Truths = np.zeros((0, len(self.values)), np.bool_)

    def numbers(self, allowed: Truths) -> NDArray[np.int64]:
        """The numbers of sets, given as rows of shape ``(sets, values)``."""
        found: list[int] = []
        for row, packed in zip(allowed, np.packbits(allowed, axis=1), strict=True):
            key = packed.tobytes()
            number = self._numbers.get(key)
            if number is None:
                number = self._numbers[key] = len(self._rows)
                self._rows.append(row.copy())
            found.append(number)
        return np.array(found, np.int64)

    @property
    def table(self) -> Truths:
        """All sets so far, one row each."""
        if len(self._table) < len(self._rows):
            self._table = np.array(self._rows, np.bool_)
        return self._table


class SizeCounts:
    """Numbers of combinations of sizes, each from a numbered set, that satisfy conditions."""

    def __init__(
        self,
        entries: Sequence[SizeEntry],
        together: Iterable[Predicate],
        sets: SizeSets,
        watch: Watch,
    ) -> None:
        self._entries = list(entries)
        names = [name for name, _ in entries]
        parts = sorted(together, key=str)
        scopes = [sum(1 << names.index(v) for v in names if v in variables(p)) for p in parts]
        self._groups: list[_Tied] = []
        for group in groups_of(len(names), scopes):
            inside = [self._entries[place] for place in bits(group)]
            own = [p for p, scope in zip(parts, scopes, strict=True) if scope & group]
            self._groups.append(_Tied(inside, own, sets, watch))
        self.bound = 1
        for _, domain in entries:
            self.bound *= len(domain)

    def of(self, numbers: Mapping[LocalSizeVariable, Array], rows: int) -> Array:
        """For each row the number of combinations, given the number of each size's set.

        64-bit integers where these suffice, else Python's.
        """
        found: Array = np.ones(rows, np.int64 if self.bound < EXACT else object)
        for group in self._groups:
            found = found * group.counts(numbers, rows)
        return found

    def draw(
        self, numbers: Mapping[LocalSizeVariable, int], random: Random
    ) -> dict[LocalSizeVariable, int]:
        """One combination, each equally likely; there must be one."""
        found: dict[LocalSizeVariable, int] = {}
        for group in self._groups:
            found |= group.draw(numbers, random)
        return found


@dataclass(frozen=True, slots=True)
class _Step:
    """A layer for sums by its arcs' ends: arcs sorted by target, and where each target begins."""

    size: LocalSizeVariable
    layer: Layer
    places: Array
    by_target: Array
    target_starts: Array


class _Tied:
    """Sizes that conditions tie together, with their diagram."""

    def __init__(
        self,
        entries: Sequence[SizeEntry],
        predicates: Sequence[Predicate],
        sets: SizeSets,
        watch: Watch,
    ) -> None:
        self._sets = sets
        self._watch = watch
        self._most_bytes = (watch.limits.memory_bytes or DEFAULT_MEMORY) // _PAIRS
        constraints = tuple(
            Constraint("sizes", "sizes", (), p, _SOURCE, None, "", "") for p in predicates
        )
        diagram = compile_arithmetic(Space(tuple(entries), constraints), watch)
        self._empty = not diagram.count
        self._fixed = [
            (name, sets.values.index(diagram.fixed[name]))
            for name, _ in entries
            if name in diagram.fixed
        ]
        bound = 1
        for _, domain in entries:
            bound *= len(domain)
        self._dtype: np.dtype[Any] = np.dtype(np.float64 if bound < EXACT else object)
        self._steps = [] if self._empty else _steps(diagram, dict(entries), sets)
        self._pairs: dict[tuple[int, ...], Array] = {}
        self._known = 0
        self._ways_on: Array | None = None

    def counts(self, numbers: Mapping[LocalSizeVariable, Array], rows: int) -> Array:
        """As :meth:`SizeCounts.of`."""
        exact = np.int64 if self._dtype == np.float64 else object
        if self._empty:
            return np.zeros(rows, exact)
        table = self._sets.table
        found: Array = np.ones(rows, exact)
        for name, place in self._fixed:
            found = found * table[numbers[name], place]
        columns = [numbers[step.size] for step in self._steps]
        if not columns:
            return found
        self._refresh()
        if len(columns) == 1:
            return found * self._last[columns[0], 0].astype(exact)
        *before, row, column = columns
        ways: Array = np.zeros(rows, exact)
        for prefix, places in _by_prefix(before, rows):
            self._watch.tick()
            pairs = self._pairs_after(prefix)
            ways[places] = pairs[row[places], column[places]].astype(exact)
        return found * ways

    def _refresh(self) -> None:
        """Forget what was computed before there were as many sets as now."""
        if self._known < len(self._sets.table):
            self._known = len(self._sets.table)
            self._pairs.clear()
            self._ways_on = None

    @property
    def _last(self) -> Array:
        """For each set of the last size and each state before it the number of values."""
        if self._ways_on is None:
            step = self._steps[-1]
            arcs: Array = self._sets.table[:, step.places].astype(self._dtype)
            self._ways_on = np.add.reduceat(arcs, step.layer.starts[:-1], axis=1)
        return self._ways_on

    def _pairs_after(self, prefix: tuple[int, ...]) -> Array:
        """Counts for all pairs of sets of the last two sizes, given those of the sizes before."""
        found = self._pairs.get(prefix)
        if found is None:
            table = self._sets.table
            vector: Array = np.ones((1, 1), self._dtype)
            for step, number in zip(self._steps, prefix, strict=False):
                vector = _carried(vector, step, table[number : number + 1])
            found = _carried(vector, self._steps[-2], table) @ self._last.T
            if (len(self._pairs) + 1) * found.nbytes > self._most_bytes:
                self._pairs.clear()
            self._pairs[prefix] = found
        return found

    def draw(
        self, numbers: Mapping[LocalSizeVariable, int], random: Random
    ) -> dict[LocalSizeVariable, int]:
        """As :meth:`SizeCounts.draw`."""
        table = self._sets.table
        found = {name: self._sets.values[place] for name, place in self._fixed}
        ways: Array = np.ones(self._steps[-1].layer.next_states if self._steps else 1, object)
        weights: list[Array] = []
        for step in reversed(self._steps):
            own = table[numbers[step.size], step.places] * ways[step.layer.target]
            weights.append(own)
            ways = np.add.reduceat(own, step.layer.starts[:-1])
        state = 0
        for step, own in zip(self._steps, reversed(weights), strict=True):
            first, last = int(step.layer.starts[state]), int(step.layer.starts[state + 1])
            arc = first + drawn(own[first:last], random)
            found[step.size] = self._sets.values[int(step.places[arc])]
            state = int(step.layer.target[arc])
        return found


def drawn(weights: Array, random: Random) -> int:
    """A place, drawn with probability proportional to its weight, an integer; not all are 0."""
    sums = np.cumsum(weights)
    return int(np.searchsorted(sums, random.randrange(int(sums[-1])), side="right"))


def _carried(vector: Array, step: _Step, allowed: Truths) -> Array:
    """Numbers of ways to each state after a layer, for each set of its size.

    ``vector`` has shape ``(1, states)`` and ``allowed`` ``(sets, values)``; the result has
    shape ``(sets, next states)``.
    """
    arcs = step.by_target
    ways = vector[:, step.layer.source[arcs]] * allowed[:, step.places[arcs]]
    return np.add.reduceat(ways, step.target_starts, axis=1)


def _steps(
    diagram: Diagram, domains: Mapping[LocalSizeVariable, tuple[int, ...]], sets: SizeSets
) -> list[_Step]:
    values = as_array(sets.values)
    found: list[_Step] = []
    for layer in diagram.layers:
        size = next(name for name in domains if name == layer.variable)
        places = np.searchsorted(values, as_array(layer.domain))[layer.value]
        by_target = np.argsort(layer.target, kind="stable")
        counts = np.bincount(layer.target, minlength=layer.next_states)
        starts = np.cumsum(counts) - counts
        found.append(_Step(size, layer, places, by_target, starts))
    return found


def _by_prefix(columns: Sequence[Array], rows: int) -> list[tuple[tuple[int, ...], Array]]:
    """Rows that agree in all columns, together."""
    if not columns:
        return [((), np.arange(rows))]
    table = np.stack(columns)
    order = np.lexsort(table)
    ordered = table[:, order]
    changes = np.flatnonzero((ordered[:, 1:] != ordered[:, :-1]).any(axis=0)) + 1
    return [
        (tuple(int(number) for number in table[:, places[0]]), places)
        for places in np.split(order, changes)
        if len(places)
    ]
