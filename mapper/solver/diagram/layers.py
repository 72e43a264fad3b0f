"""A layered decision diagram: counting, sampling and listing its paths.

Each path from the root to the end is one solution. Counts are exact whatever their size; a
sample follows arcs with probability proportional to the solutions behind them, so it is
uniform over all solutions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.constraint_rules.predicate import Variable
from mapper.errors import LimitError, Problem
from mapper.solver.diagram.grouping import Indices
from mapper.solver.limits import DEFAULT_LIMITS, Watch

Array = NDArray[Any]
# Sums of counts below this fit in 64 bits; the bound is compared with inexact floats.
_SAFE = float(2**61)


@dataclass(slots=True)
class Layer:
    """The arcs that decide one variable, ordered by the state that they leave.

    Arc ``j`` leads from state ``source[j]`` with value ``domain[value[j]]`` to state
    ``target[j]`` of the next layer.
    """

    variable: Variable
    domain: tuple[int, ...]
    states: int
    next_states: int
    source: Array
    value: Array
    target: Array
    starts: Array = field(default_factory=lambda: np.zeros(0, np.intp))

    def __post_init__(self) -> None:
        self.source = self.source.astype(np.int32, copy=False)
        self.value = self.value.astype(np.int32, copy=False)
        self.target = self.target.astype(np.int32, copy=False)

    @property
    def n_bytes(self) -> int:
        """Bytes of its arrays."""
        return self.source.nbytes + self.value.nbytes + self.target.nbytes


def _prune(layers: Sequence[Layer]) -> None:
    """Drop arcs that lead nowhere and renumber states; afterwards every state has an arc."""
    alive = np.ones(layers[-1].next_states, np.bool_) if layers else np.ones(1, np.bool_)
    for layer in reversed(layers):
        if not alive.all():
            keep = alive[layer.target]
            names = np.cumsum(alive) - 1
            layer.source = layer.source[keep]
            layer.value = layer.value[keep]
            layer.target = names[layer.target[keep]].astype(np.int32)
            layer.next_states = int(alive.sum())
        counts = np.bincount(layer.source, minlength=layer.states)
        alive = counts > 0
        if alive.all():
            layer.starts = np.concatenate(([0], np.cumsum(counts)))
            continue
        layer.starts = np.concatenate(([0], np.cumsum(counts[alive])))
        names = np.cumsum(alive) - 1
        layer.source = names[layer.source].astype(np.int32)
        layer.states = int(alive.sum())


@dataclass(frozen=True, slots=True)
class SolutionTable:
    """Solutions as columns: ``columns[k][i]`` is the value of ``variables[k]`` in solution i."""

    variables: tuple[Variable, ...]
    columns: tuple[Array, ...]
    rows: int

    def __len__(self) -> int:
        return self.rows

    def assignment(self, row: int) -> dict[Variable, int]:
        """One solution."""
        return {
            variable: int(column[row])
            for variable, column in zip(self.variables, self.columns, strict=True)
        }

    def assignments(self) -> list[dict[Variable, int]]:
        """All solutions as dicts, in order."""
        lists = [column.tolist() for column in self.columns]
        return (
            [dict(zip(self.variables, values, strict=True)) for values in zip(*lists, strict=True)]
            if lists
            else [{} for _ in range(self.rows)]
        )


class Diagram:
    """All solutions of a space, shared as far as they are alike."""

    def __init__(
        self, layers: list[Layer], variables: Sequence[Variable], fixed: dict[Variable, int]
    ) -> None:
        _prune(layers)
        self.layers = layers
        self.variables = tuple(variables)
        self.fixed = fixed
        self._suffixes: list[Array] | None = None

    @property
    def nodes(self) -> int:
        """The number of states."""
        return sum(layer.states for layer in self.layers) + 1

    @property
    def arcs(self) -> int:
        """The number of arcs."""
        return sum(len(layer.source) for layer in self.layers)

    @property
    def count(self) -> int:
        """The number of solutions, exact."""
        if any(not layer.states for layer in self.layers):
            return 0
        return int(self.suffixes[0][0])

    @property
    def suffixes(self) -> list[Array]:
        """For each layer and state the number of completions; a last entry for the end.

        64-bit integers where these suffice, else Python's.
        """
        if self._suffixes is None:
            self._suffixes = suffix_counts(self.layers)
        return self._suffixes

    def table(self, watch: Watch | None = None) -> SolutionTable:
        """Every solution; LimitError if there are more than the limits allow."""
        watch = watch or Watch()
        allowed = watch.limits.solutions
        if allowed is not None and self.count > allowed:
            raise LimitError(
                Problem("", "there are too many solutions to list", str(self.count), f"{allowed}",
                        "pin or forbid values, or sample")
            )  # fmt: skip
        count = self.count
        watch.refuse_beyond(count * 8 * len(self.variables), "the table of solutions")
        if not count:
            return self._table({}, 0)
        state = np.zeros(1, np.int32)
        parents: list[Array | None] = []
        values: list[Array] = []
        for layer in self.layers:
            watch.tick()
            starts = layer.starts
            degree = starts[1:] - starts[:-1]
            own = degree[state]
            if (own == 1).all():
                parents.append(None)
                arc = starts[state]
            else:
                ends = np.cumsum(own)
                parent = np.repeat(np.arange(len(state), dtype=np.int32), own)
                offset = np.arange(int(ends[-1])) - np.repeat(ends - own, own)
                arc = starts[state][parent] + offset
                parents.append(parent)
            values.append(layer.value[arc])
            state = layer.target[arc]
        chosen: dict[Variable, Array] = {}
        index: Array | None = None
        for layer, parent, value in zip(
            reversed(self.layers), reversed(parents), reversed(values), strict=True
        ):
            domain = _as_array(layer.domain)
            chosen[layer.variable] = domain[value if index is None else value[index]]
            if parent is not None:
                index = parent if index is None else parent[index]
        return self._table(chosen, count)

    def sample(self, number: int, seed: int) -> SolutionTable:
        """``number`` solutions drawn uniformly and independently, the same for one seed.

        The table is empty if there are no solutions.
        """
        total = self.count
        if not total or not number:
            return self._table({}, 0)
        if total < _SAFE:
            return self._sample_small(number, seed)
        return self._sample_large(number, seed)

    def _sample_small(self, number: int, seed: int) -> SolutionTable:
        """Draws the ranks of solutions, then reads each solution off its rank."""
        ranks = np.random.default_rng(seed).integers(0, self.count, size=number)
        return self.at_ranks(ranks)

    def at_ranks(self, ranks: Array) -> SolutionTable:
        """The solutions with these numbers, from 0 below ``count``, in the diagram's order."""
        state = np.zeros(len(ranks), np.int64)
        left: Array = ranks.copy()
        chosen: dict[Variable, Array] = {}
        for layer, behind in zip(self.layers, self.suffixes[1:], strict=True):
            weights = behind[layer.target]
            # Within one state the sums stay below its count, so wrapping of the whole is benign.
            ends = np.cumsum(weights)
            starts = layer.starts
            base = (ends - weights)[starts[state]]
            low, high = starts[state], starts[state + 1] - 1
            while True:
                open_rows = low < high
                if not open_rows.any():
                    break
                middle = (low + high) >> 1
                beyond = (ends[middle] - base <= left) & open_rows
                low = np.where(beyond, middle + 1, low)
                high = np.where(open_rows & ~beyond, middle, high)
            left = left - ((ends - weights)[low] - base)
            chosen[layer.variable] = _as_array(layer.domain)[layer.value[low]]
            state = layer.target[low].astype(np.int64)
        return self._table(chosen, len(ranks))

    def _sample_large(self, number: int, seed: int) -> SolutionTable:
        """As the small one, with Python's integers."""
        from random import Random

        random = Random(seed)
        total = self.count
        ranks = [random.randrange(total) for _ in range(number)]
        cumulated: list[dict[int, list[int]]] = [{} for _ in self.layers]
        picked: list[list[int]] = [[] for _ in self.layers]
        for rank in ranks:
            state = 0
            for depth, layer in enumerate(self.layers):
                start, end = int(layer.starts[state]), int(layer.starts[state + 1])
                sums = cumulated[depth].get(state)
                if sums is None:
                    behind = self.suffixes[depth + 1][layer.target[start:end]]
                    sums = cumulated[depth][state] = list(accumulate(int(n) for n in behind))
                place = bisect_right(sums, rank)
                if place:
                    rank -= sums[place - 1]
                picked[depth].append(int(layer.value[start + place]))
                state = int(layer.target[start + place])
        chosen = {
            layer.variable: _as_array(layer.domain)[np.array(values)]
            for layer, values in zip(self.layers, picked, strict=True)
        }
        return self._table(chosen, number)

    def _table(self, chosen: dict[Variable, Array], rows: int) -> SolutionTable:
        columns: list[Array] = []
        for variable in self.variables:
            if variable in self.fixed:
                columns.append(np.full(rows, self.fixed[variable]))
            else:
                columns.append(chosen.get(variable, np.zeros(rows, np.int64)))
        return SolutionTable(self.variables, tuple(columns), rows)


def suffix_counts(layers: Sequence[Layer]) -> list[Array]:
    """Numbers of completions for each layer and state, and 1 for each final state."""
    last = layers[-1].next_states if layers else 1
    counts: Array = np.ones(last, np.int64)
    found = [counts]
    for layer in reversed(layers):
        if not layer.states:
            found.append(np.zeros(0, np.int64))
            counts = found[-1]
            continue
        if counts.dtype != object and len(counts):
            degree = int((layer.starts[1:] - layer.starts[:-1]).max())
            if float(counts.max()) * degree >= _SAFE:
                counts = counts.astype(object)
        counts = np.add.reduceat(counts[layer.target], layer.starts[:-1])
        found.append(counts)
    found.reverse()
    return found


def _as_array(domain: tuple[int, ...]) -> Array:
    try:
        return np.array(domain, np.int64)
    except OverflowError:
        return np.array(domain, object)


__all__ = ["DEFAULT_LIMITS", "Diagram", "Indices", "Layer", "SolutionTable", "suffix_counts"]
