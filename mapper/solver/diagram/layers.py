"""A layered decision diagram: counting, sampling and listing its paths.

Each path from the root to the end is one solution. Counts are exact whatever their size; a
sample follows arcs with probability proportional to the solutions behind them, so it is
uniform over all solutions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.constraint_rules.predicate import Variable
from mapper.errors import LimitError, Problem
from mapper.solver.limits import Watch

Array = NDArray[Any]
# So many solutions are drawn at once, and so many bytes does it take to remember one.
_BATCH = 1 << 12
_RANK_BYTES = 100
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
        chosen, _ = self._expand(self.layers, watch)
        return self._table(chosen, count)

    def prefixes(
        self, decided: int, watch: Watch | None = None
    ) -> tuple[SolutionTable, Array, Array]:
        """The different beginnings of solutions, how many solutions each has, and where it ends.

        A beginning is what the first ``decided`` layers choose; the table has these variables
        only, those with one value first.
        """
        watch = watch or Watch()
        layers = self.layers[:decided]
        rows = prefix_counts(layers, self.count)
        allowed = watch.limits.solutions
        if allowed is not None and rows > allowed:
            raise LimitError(
                Problem("", "there are too many combinations of values", str(rows), f"{allowed}",
                        "pin or forbid values")
            )  # fmt: skip
        # Values, their places in domains and the rows that they come from.
        watch.refuse_beyond(rows * 16 * (decided + 2), "the table of combinations")
        chosen, state = self._expand(layers, watch)
        fixed = {name: np.full(rows, value) for name, value in self.fixed.items()}
        columns = {**fixed, **chosen}
        table = SolutionTable(tuple(columns), tuple(columns.values()), rows)
        return table, self.suffixes[decided][state], state

    def _expand(self, layers: Sequence[Layer], watch: Watch) -> tuple[dict[Variable, Array], Array]:
        """Every path through the layers: the values chosen, and the state it ends in."""
        state = np.zeros(1, np.int32)
        parents: list[Array | None] = []
        values: list[Array] = []
        for layer in layers:
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
                arc = np.arange(int(ends[-1])) + (starts[state] - ends + own)[parent]
                parents.append(parent)
            values.append(layer.value[arc])
            state = layer.target[arc]
        chosen: dict[Variable, Array] = {}
        index: Array | None = None
        for layer, parent, value in zip(
            reversed(layers), reversed(parents), reversed(values), strict=True
        ):
            watch.tick()
            domain = as_array(layer.domain)
            chosen[layer.variable] = domain[value if index is None else value[index]]
            if parent is not None:
                index = parent if index is None else parent[index]
        return chosen, state

    def sample(self, number: int, seed: int) -> SolutionTable:
        """``number`` solutions drawn uniformly and independently, the same for one seed.

        The table is empty if there are no solutions.
        """
        return self.at_ranks(ranks_below(self.count, number, Random(seed)))

    def sample_distinct(self, number: int, seed: int) -> SolutionTable:
        """``number`` different solutions, every choice of that many equally likely, or all."""
        return self.at_ranks(distinct_ranks_below(self.count, number, Random(seed)))

    def at_ranks(self, ranks: Sequence[int]) -> SolutionTable:
        """The solutions with these numbers, from 0 below ``count``, in the diagram's order."""
        if not len(ranks):
            return self._table({}, 0)
        chosen = walk(self.layers, self.suffixes, np.zeros(len(ranks), np.int64), ranks)
        return self._table(chosen, len(ranks))

    def completions(
        self, decided: int, states: Array, ranks: Sequence[int]
    ) -> dict[Variable, Array]:
        """Ways on from states behind the first ``decided`` layers, by their numbers there.

        Rank ``i`` is from 0 below ``suffixes[decided][states[i]]``.
        """
        return walk(self.layers[decided:], self.suffixes[decided:], states, ranks)

    def _table(self, chosen: dict[Variable, Array], rows: int) -> SolutionTable:
        columns: list[Array] = []
        for variable in self.variables:
            if variable in self.fixed:
                columns.append(np.full(rows, self.fixed[variable]))
            else:
                columns.append(chosen.get(variable, np.zeros(rows, np.int64)))
        return SolutionTable(self.variables, tuple(columns), rows)


def ranks_below(total: int, number: int, random: Random) -> list[int]:
    """Numbers from 0 below ``total``, each drawn on its own; none if there is nothing to draw."""
    return [random.randrange(total) for _ in range(number)] if total else []


def distinct_ranks_below(total: int, number: int, random: Random) -> list[int]:
    """``number`` different numbers from 0 below ``total``, in random order, or all of them."""
    if total <= 4 * number:
        ranks = list(range(total))
        random.shuffle(ranks)
        return ranks[:number]
    found: dict[int, None] = {}
    while len(found) < number:
        found[random.randrange(total)] = None
    return list(found)


def batches_of_ranks(
    total: int, number: int, random: Random, watch: Watch
) -> Iterator[Sequence[int]]:
    """The numbers of :func:`distinct_ranks_below` in the same order, a batch at a time.

    LimitError where remembering which were given would take more memory than allowed: it is
    taken as they are asked for, or at once where nearly all are.
    """
    if total <= 4 * number:
        watch.refuse_beyond(total * _RANK_BYTES, "a sample of so many solutions")
        ranks = distinct_ranks_below(total, number, random)
        for start in range(0, len(ranks), _BATCH):
            watch.tick()
            yield ranks[start : start + _BATCH]
        return
    given: set[int] = set()
    while len(given) < number:
        watch.tick()
        watch.refuse_beyond(len(given) * _RANK_BYTES, "a sample of so many solutions")
        batch: list[int] = []
        for _ in range(min(_BATCH, number - len(given))):
            rank = random.randrange(total)
            if rank not in given:
                given.add(rank)
                batch.append(rank)
        yield batch


def walk(
    layers: Sequence[Layer], suffixes: Sequence[Array], states: Array, ranks: Sequence[int]
) -> dict[Variable, Array]:
    """The paths with these numbers among those from the given states of the first layer.

    ``suffixes`` are the numbers of completions, with one entry more than there are layers.
    """
    if any(counts.dtype == object for counts in suffixes):
        return _walk_wide(layers, suffixes, states, ranks)
    state = states.astype(np.int64)
    left = np.array(ranks, np.int64)
    chosen: dict[Variable, Array] = {}
    for layer, behind in zip(layers, suffixes[1:], strict=True):
        weights = behind[layer.target]
        # Only differences within a state count, so that the running sum may wrap around.
        ends = np.cumsum(weights)
        starts = layer.starts
        low, high = starts[state], starts[state + 1] - 1
        base = ends[low] - weights[low]
        while (low < high).any():
            middle = (low + high) >> 1
            beyond = (ends[middle] - base <= left) & (low < high)
            high = np.where(beyond, high, np.maximum(middle, low))
            low = np.where(beyond, middle + 1, low)
        left = left - (ends[low] - weights[low] - base)
        chosen[layer.variable] = as_array(layer.domain)[layer.value[low]]
        state = layer.target[low].astype(np.int64)
    return chosen


def _walk_wide(
    layers: Sequence[Layer], suffixes: Sequence[Array], states: Array, ranks: Sequence[int]
) -> dict[Variable, Array]:
    """As :func:`walk`, with Python's integers."""
    sums_of: list[dict[int, list[int]]] = [{} for _ in layers]
    picked: list[list[int]] = [[] for _ in layers]
    for begin, rank in zip(states.tolist(), ranks, strict=True):
        state, left = int(begin), rank
        for depth, layer in enumerate(layers):
            start, end = int(layer.starts[state]), int(layer.starts[state + 1])
            sums = sums_of[depth].get(state)
            if sums is None:
                behind = suffixes[depth + 1][layer.target[start:end]]
                sums = sums_of[depth][state] = list(accumulate(int(n) for n in behind))
            place = bisect_right(sums, left)
            left -= sums[place - 1] if place else 0
            picked[depth].append(int(layer.value[start + place]))
            state = int(layer.target[start + place])
    return {
        layer.variable: as_array(layer.domain)[np.array(values, np.int64)]
        for layer, values in zip(layers, picked, strict=True)
    }


def reversed_layers(layers: Sequence[Layer]) -> list[Layer]:
    """The same paths from the end to the root."""
    found: list[Layer] = []
    for layer in reversed(layers):
        order = np.argsort(layer.target, kind="stable")
        counts = np.bincount(layer.target, minlength=layer.next_states)
        found.append(
            Layer(
                layer.variable,
                layer.domain,
                layer.next_states,
                layer.states,
                layer.target[order],
                layer.value[order],
                layer.source[order],
                np.concatenate(([0], np.cumsum(counts))),
            )
        )
    return found


def prefix_counts(layers: Sequence[Layer], bound: int) -> int:
    """The number of paths through some layers from the root; ``bound`` is at least as large."""
    counts: Array = np.ones(1, np.int64 if bound < _SAFE else object)
    for layer in layers:
        following = np.zeros(layer.next_states, counts.dtype)
        np.add.at(following, layer.target, counts[layer.source])
        counts = following
    return int(counts.sum())


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


def as_array(domain: tuple[int, ...]) -> Array:
    """Values as an array, of Python's integers where 64 bits do not hold them."""
    try:
        return np.array(domain, np.int64)
    except OverflowError:
        return np.array(domain, object)
