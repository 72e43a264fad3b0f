"""Parameters, local sizes and classes of codes as groups and couplings: exact counts, and solutions
by number.

What speaks of one group is a table (:mod:`tables`), what speaks of several a small decision diagram
over the groups' signatures (:mod:`couplings`); a path counts for as many solutions as the rows of
its signatures have combinations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.constraint_rules.predicate import Predicate, Truth, Variable, variables
from mapper.constraint_rules.rewriting import bind
from mapper.solver.diagram.compile import conjuncts
from mapper.solver.diagram.layers import Diagram, Layer
from mapper.solver.diagram.sweep import sweep
from mapper.solver.factored.couplings import Couplings, SignatureGraph, Signatures
from mapper.solver.factored.definitions import definitions_of
from mapper.solver.factored.tables import Table, free_table, grouped
from mapper.solver.limits import Watch
from mapper.solver.space import Domain

Array = NDArray[Any]
_SAFE = float(2**61)
_ALL = slice(None)
_NO_WAYS: Mapping[Variable, Array] = {}


@dataclass(frozen=True, slots=True)
class Counts:
    """How many solutions there are, if rows of the tables count for ``rows``.

    ``suffixes`` has for each level and state the solutions that go on from there.
    """

    total: int
    rows: Mapping[int, Array]
    suffixes: Sequence[Array]


class FactoredValues:
    """All values of some variables that satisfy predicates, without going through them.

    ``weights``: for how many solutions each value of a variable counts, in the order of its
    domain. ``last`` are variables that are decided after all others, so that what depends on
    them is a few truths until then. TooManyArcsError beyond ``most_arcs`` in the diagram.
    """

    def __init__(
        self,
        entries: Sequence[tuple[Variable, Domain]],
        predicates: Iterable[Predicate],
        watch: Watch,
        *,
        weights: Mapping[Variable, Array] = _NO_WAYS,
        last: Collection[Variable] = (),
        most_arcs: int | None = None,
    ) -> None:
        self.watch = watch
        domains = dict(entries)
        self._fixed = {
            name: domain[0] for name, domain in entries if len(domain) == 1 and name not in weights
        }
        bound = [bind(predicate, self._fixed) for predicate in predicates]
        self._definitions = definitions_of(bound, domains)
        follows = self._definitions.terms
        rest = self._definitions.rest
        singles = [
            Table({name: np.array(domain)}, weights[name])
            if name in weights
            else free_table(name, domain)
            for name, domain in entries
            if name not in follows and name not in self._fixed
        ]
        scopes = {predicate: self._scope(predicate) for predicate in rest}
        self._impossible = any(isinstance(p, Truth) and not p.value for p in rest)
        found = grouped(singles, rest, scopes, domains, last, watch)
        couplings = Couplings(found.tables, found.couplings, follows, domains)
        later = frozenset(last)

        def when(one: Signatures) -> tuple[bool, int]:
            return one.table.columns.keys() <= later, one.number

        self.groups = tuple(sorted(couplings.signatures, key=when))
        self._levels = [place for place, one in enumerate(self.groups) if one.number > 1]
        self._layers = self._swept(couplings, most_arcs)
        self._counts = self.counts({})

    def _scope(self, predicate: Predicate) -> frozenset[Variable]:
        """The variables that it depends on and that follow from no others."""
        follows = self._definitions.terms
        found: set[Variable] = set()
        for name in variables(predicate):
            found |= variables(follows[name]) if name in follows else {name}
        return frozenset(found)

    def _swept(self, couplings: Couplings, most_arcs: int | None) -> list[Layer]:
        if self._impossible or any(not one.table.rows for one in self.groups):
            self._impossible = True
            return []
        levels = [self.groups[place] for place in self._levels]
        single = [one for one in self.groups if one.number == 1]
        graph = SignatureGraph([*levels, *single], couplings.definitions)
        roots = [graph.enter(p) for predicate in couplings.predicates for p in conjuncts(predicate)]
        roots = [root for root in dict.fromkeys(roots) if not graph.nodes[root].low]
        if any(not graph.nodes[root].high for root in roots):
            self._impossible = True
            return []
        domains = [tuple(range(one.number)) for one in levels]
        layers = sweep(graph, roots, domains, self.watch, most_arcs)
        self._impossible = bool(layers) and not layers[-1].next_states
        return Diagram(layers, graph.order[: len(layers)], {}).layers if layers else []

    @property
    def count(self) -> int:
        """The number of solutions, exact."""
        return self._counts.total

    def counts(self, only: Mapping[Variable, int]) -> Counts:
        """As :attr:`count`, of the solutions in which some variables have these values."""
        rows: dict[int, Array] = {}
        for place, one in enumerate(self.groups):
            rows[place] = one.table.ways
            for name, value in only.items():
                if name in one.table.columns:
                    rows[place] = np.where(one.table.columns[name] == value, rows[place], 0)
        if self._impossible or any(not ways.any() for ways in rows.values()):
            return Counts(0, rows, ())
        suffixes = self._suffixes_within(rows) if only else self._suffixes(rows)
        free = (ways for place, ways in rows.items() if self.groups[place].number == 1)
        return Counts(int(suffixes[0][0]) * prod(int(ways.sum()) for ways in free), rows, suffixes)

    def _suffixes(self, rows: Mapping[int, Array]) -> list[Array]:
        last = self._layers[-1].next_states if self._layers else 1
        counts: Array = np.ones(last, np.int64)
        found = [counts]
        for layer, place in zip(reversed(self._layers), reversed(self._levels), strict=True):
            self.watch.tick()
            ways = self.groups[place].ways(rows[place])
            if counts.dtype != object and len(counts):
                degree = int((layer.starts[1:] - layer.starts[:-1]).max(initial=0))
                if float(counts.max()) * degree * float(ways.max()) >= _SAFE:
                    counts = counts.astype(object)
            counts = np.add.reduceat(_weights(layer, ways, counts), layer.starts[:-1])
            found.append(counts)
        found.reverse()
        return found

    def _suffixes_within(self, rows: Mapping[int, Array]) -> list[Array]:
        """As :meth:`_suffixes`, by the arcs alone that values which are given leave: mostly few."""
        states: Array = np.zeros(1, np.int64)
        left: list[tuple[Array, Array, Array]] = []
        for layer, place in zip(self._layers, self._levels, strict=True):
            self.watch.tick()
            ways = self.groups[place].ways(rows[place])
            first, number = layer.starts[states], layer.starts[states + 1] - layer.starts[states]
            before = np.cumsum(number) - number
            arcs = np.repeat(first - before, number) + np.arange(int(number.sum()))
            sources = np.repeat(states, number)
            kept = ways[layer.value[arcs]] != 0
            arcs, sources = arcs[kept], sources[kept]
            left.append((arcs, sources, ways))
            states = np.unique(layer.target[arcs])
        counts: Array = np.ones(self._layers[-1].next_states if self._layers else 1, np.int64)
        found = [counts]
        for layer, own in zip(reversed(self._layers), reversed(left), strict=True):
            arcs, sources, ways = own
            most = float(counts.max(initial=0)) * len(arcs) * float(ways.max())
            if counts.dtype != object and most >= _SAFE:
                counts = counts.astype(object)
            weights = ways[layer.value[arcs]] * counts[layer.target[arcs]]
            counts = np.zeros(len(layer.starts) - 1, weights.dtype)
            np.add.at(counts, sources, weights)
            found.append(counts)
        found.reverse()
        return found

    def at_rank(self, rank: int, counts: Counts | None = None) -> dict[Variable, int]:
        """The solution with a number from 0 below the total of some counts (:attr:`count`)."""
        counts = counts or self._counts
        chosen: dict[Variable, int] = dict(self._fixed)
        for place, one in enumerate(self.groups):
            if one.number == 1:
                ways = counts.rows[place]
                rank, own = divmod(rank, int(ways.sum()))
                chosen |= _row(one.table, _place(ways, own)[0])
        state = 0
        for layer, place, behind in zip(
            self._layers, self._levels, counts.suffixes[1:], strict=True
        ):
            one, rows = self.groups[place], counts.rows[place]
            first, last = int(layer.starts[state]), int(layer.starts[state + 1])
            weights = _weights(layer, one.ways(rows), behind, slice(first, last))
            arc, rank = _place(weights, rank)
            signature, state = int(layer.value[first + arc]), int(layer.target[first + arc])
            inside = one.order[int(one.starts[signature]) : int(one.starts[signature + 1])]
            own, rank = divmod(rank, int(behind[state]))
            chosen |= _row(one.table, int(inside[_place(rows[inside], own)[0]]))
        return self._definitions.complete(chosen)


def _weights(layer: Layer, ways: Array, behind: Array, arcs: slice = _ALL) -> Array:
    """For each arc the solutions behind it: those of its signature times what follows."""
    return ways[layer.value[arcs]] * behind[layer.target[arcs]]


def _place(weights: Array, rank: int) -> tuple[int, int]:
    """Whose part of a sum a number falls into, and how far into it."""
    ends = np.cumsum(weights)
    place = int(np.searchsorted(ends, rank, side="right"))
    return place, rank - int(ends[place] - weights[place])


def _row(table: Table, row: int) -> dict[Variable, int]:
    return {name: int(column[row]) for name, column in table.columns.items()}
