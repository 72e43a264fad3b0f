"""Parameters and local sizes as groups and couplings: exact counts, and solutions by number.

What speaks of one group is a table (:mod:`tables`), what speaks of several a small decision diagram
over the groups' signatures (:mod:`couplings`); a path counts for as many solutions as the rows of
its signatures have combinations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.constraint_rules.evaluation import bind
from mapper.constraint_rules.predicate import Predicate, Truth, Variable, variables
from mapper.solver.diagram.compile import conjuncts
from mapper.solver.diagram.layers import Diagram, Layer
from mapper.solver.diagram.sweep import sweep
from mapper.solver.factored.couplings import Couplings, SignatureGraph, Signatures
from mapper.solver.factored.definitions import definitions_of
from mapper.solver.factored.tables import Table, grouped
from mapper.solver.limits import Watch
from mapper.solver.space import Domain

Array = NDArray[Any]


class FactoredValues:
    """All values of some variables that satisfy predicates, without going through them."""

    def __init__(
        self,
        entries: Sequence[tuple[Variable, Domain]],
        predicates: Iterable[Predicate],
        watch: Watch,
    ) -> None:
        self._watch = watch
        self._fixed = {name: domain[0] for name, domain in entries if len(domain) == 1}
        domains = dict(entries)
        bound = [bind(predicate, self._fixed) for predicate in predicates]
        self._definitions = definitions_of(bound, domains)
        follows = self._definitions.terms
        rest = self._definitions.rest
        own = [e for e in entries if e[0] not in follows and e[0] not in self._fixed]
        scopes = {predicate: self._scope(predicate) for predicate in rest}
        self._impossible = any(isinstance(p, Truth) and not p.value for p in rest)
        found = grouped(own, rest, scopes, watch)
        couplings = Couplings(found.tables, found.couplings, follows, domains)
        seen = sorted(couplings.signatures, key=lambda one: len(one.ways))
        self._free = [one for one in seen if len(one.ways) <= 1]
        self._levels = [one for one in seen if len(one.ways) > 1]
        self._layers = self._swept(couplings)

    def _scope(self, predicate: Predicate) -> frozenset[Variable]:
        """The variables that it depends on and that follow from no others."""
        follows = self._definitions.terms
        found: set[Variable] = set()
        for name in variables(predicate):
            found |= variables(follows[name]) if name in follows else {name}
        return frozenset(found)

    def _swept(self, couplings: Couplings) -> list[Layer]:
        if self._impossible or any(not one.table.rows for one in couplings.signatures):
            self._impossible = True
            return []
        graph = SignatureGraph([*self._levels, *self._free], couplings.definitions)
        roots = [graph.enter(p) for predicate in couplings.predicates for p in conjuncts(predicate)]
        roots = [root for root in dict.fromkeys(roots) if not graph.nodes[root].low]
        if any(not graph.nodes[root].high for root in roots):
            self._impossible = True
            return []
        domains = [tuple(range(len(one.ways))) for one in self._levels]
        layers = sweep(graph, roots, domains, self._watch)
        self._impossible = bool(layers) and not layers[-1].next_states
        return Diagram(layers, graph.order[: len(layers)], {}).layers if layers else []

    @cached_property
    def count(self) -> int:
        """The number of solutions, exact."""
        if self._impossible:
            return 0
        return int(self._suffixes[0][0]) * prod(one.table.rows for one in self._free)

    @cached_property
    def _suffixes(self) -> list[Array]:
        """For each level and state the solutions that go on from there."""
        last = self._layers[-1].next_states if self._layers else 1
        counts: Array = np.ones(last, np.int64)
        found = [counts]
        for layer, one in zip(reversed(self._layers), reversed(self._levels), strict=True):
            if counts.dtype != object and len(counts):
                degree = int((layer.starts[1:] - layer.starts[:-1]).max(initial=0))
                if float(counts.max()) * degree * float(one.ways.max()) >= _SAFE:
                    counts = counts.astype(object)
            counts = np.add.reduceat(_weights(layer, one, counts), layer.starts[:-1])
            found.append(counts)
        found.reverse()
        return found

    def at_rank(self, rank: int) -> dict[Variable, int]:
        """The solution with a number from 0 below :attr:`count`."""
        chosen: dict[Variable, int] = dict(self._fixed)
        for one in self._free:
            rank, row = divmod(rank, one.table.rows)
            chosen |= _row(one.table, row)
        state = 0
        for layer, one, behind in zip(self._layers, self._levels, self._suffixes[1:], strict=True):
            first, last = int(layer.starts[state]), int(layer.starts[state + 1])
            weights = _weights(layer, one, behind, slice(first, last))
            ends = np.cumsum(weights)
            place = int(np.searchsorted(ends, rank, side="right"))
            rank -= int(ends[place] - weights[place])
            signature = int(layer.value[first + place])
            state = int(layer.target[first + place])
            row, rank = divmod(rank, int(behind[state]))
            chosen |= _row(one.table, int(one.order[int(one.starts[signature]) + row]))
        return self._definitions.complete(chosen)


_SAFE = float(2**61)
_ALL = slice(None)


def _weights(layer: Layer, one: Signatures, behind: Array, arcs: slice = _ALL) -> Array:
    """For each arc the solutions behind it: rows of its signature times what follows."""
    return one.ways[layer.value[arcs]] * behind[layer.target[arcs]]


def _row(table: Table, row: int) -> dict[Variable, int]:
    return {name: int(column[row]) for name, column in table.columns.items()}
