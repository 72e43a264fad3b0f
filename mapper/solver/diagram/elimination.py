"""Solutions of tied variables by elimination: a table for each cluster of them.

The truths of the constraints are arrays over their own variables. To eliminate a variable, all
arrays that depend on it are multiplied and summed along its axis; what remains says, for each
choice of the variables that it was tied to, how many completions there are ("bucket
elimination", as for marginals of graphical models, here over the integers). So a group of
variables is counted in arrays of the width of its constraints, not of all their combinations.
Kept arrays, walked backwards, give solutions by their number and all of them.

A group of few combinations is one cluster: then the array is the truth of all constraints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from mapper.solver.limits import Watch

Array = NDArray[Any]

#: Groups up to this size, and the last variables of larger ones, become one array.
ONE_ARRAY = 1 << 13
#: Larger arrays than this are not made: merging states level by level is better then.
MOST_CELLS = 1 << 18
_LARGEST_GROUP = 1 << 62


@dataclass(slots=True)
class _Cluster:
    """Variables decided together, given those of ``separator``.

    ``cells`` has an axis for each of ``separator`` and then of ``own``: how many completions of
    this cluster and of those below it there are.
    """

    separator: tuple[int, ...]
    own: tuple[int, ...]
    cells: Array
    below: list[_Cluster] = field(default_factory=list["_Cluster"])

    def rows(self) -> Array:
        """A row for each choice of the separator, a column for each choice of its own."""
        return self.cells.reshape(-1, prod(self.cells.shape[len(self.separator) :]))


@dataclass(frozen=True, slots=True)
class _Step:
    """What is eliminated, from which arrays and earlier clusters, and what it is tied to."""

    own: int
    separator: int
    arrays: tuple[int, ...]


def plan(group: int, scopes: Sequence[int], sizes: Sequence[int]) -> list[_Step] | None:
    """In which order to eliminate; None if an array would be too large.

    ``group`` and ``scopes`` are bit masks of variables of these sizes. Arrays are numbered as
    the scopes; the message of step ``i`` has number ``len(scopes) + i``.
    """
    extents = {0: 1}

    def extent(mask: int) -> int:
        known = extents.get(mask)
        if known is None:
            lowest = mask & -mask
            known = extents[mask] = sizes[lowest.bit_length() - 1] * extent(mask ^ lowest)
        return known

    if extent(group) >= _LARGEST_GROUP:
        return None
    left = dict(enumerate(scopes))
    steps: list[_Step] = []
    while group & (group - 1) and extent(group) > ONE_ARRAY:
        best: tuple[int, int, int] | None = None
        rest = group
        while rest:
            bit = rest & -rest
            rest ^= bit
            joined = bit
            for scope in left.values():
                if scope & bit:
                    joined |= scope
            key = extent(joined), bit, joined
            if best is None or key < best:
                best = key
        assert best is not None
        width, bit, joined = best
        if width > MOST_CELLS:
            return None
        used = tuple(number for number, scope in left.items() if scope & bit)
        for number in used:
            del left[number]
        left[len(scopes) + len(steps)] = joined ^ bit
        steps.append(_Step(bit, joined ^ bit, used))
        group ^= bit
    steps.append(_Step(group, 0, tuple(left)))
    return steps


class Elimination:
    """The solutions of a group of variables.

    ``steps`` are those of :func:`plan`, ``sizes`` those of all variables of the space; ``arrays``
    are truths with an axis for each of these, of length 1 where they do not depend on it.
    """

    def __init__(
        self, steps: Sequence[_Step], arrays: Sequence[Array], sizes: Sequence[int], watch: Watch
    ) -> None:
        self._sizes = sizes
        self._steps = steps
        self._arrays = len(arrays)
        self._products: list[Array] = []
        known = list(arrays)
        for step in steps:
            watch.tick()
            scope = step.separator | step.own
            whole = tuple(size if scope >> i & 1 else 1 for i, size in enumerate(sizes))
            product = _joined([known[number] for number in step.arrays])
            if product.shape != whole:
                product = product * np.ones(whole, product.dtype)
            if step.separator:
                known.append(np.add.reduce(product, axis=step.own.bit_length() - 1, keepdims=True))
            self._products.append(product)
        last = self._products[-1]
        self.count = int(np.count_nonzero(last) if last.dtype.kind == "b" else last.sum())

    def _cluster(self, step: _Step, product: Array, made: Sequence[_Cluster]) -> _Cluster:
        separator, own = _places(step.separator), _places(step.own)
        # Only one variable can stand before another one of its separator.
        kept = [*separator, *own]
        if kept != sorted(kept):
            product = np.moveaxis(product, own[0], -1)
        cells = product.reshape([self._sizes[place] for place in (*separator, *own)])
        below = [made[n - self._arrays] for n in step.arrays if n >= self._arrays]
        return _Cluster(separator, own, cells, below)

    @cached_property
    def _clusters(self) -> list[_Cluster]:
        """From the root on, each before those below it and these one after another."""
        made: list[_Cluster] = []
        for step, product in zip(self._steps, self._products, strict=True):
            made.append(self._cluster(step, product, made))
        found: list[_Cluster] = []
        stack = [made[-1]]
        while stack:
            cluster = stack.pop()
            found.append(cluster)
            stack += reversed(cluster.below)
        return found

    def positions(self) -> dict[int, Array]:
        """All solutions in order: for each variable the positions of its values."""
        found: dict[int, Array] = {}
        for cluster in self._clusters:
            rows = cluster.rows()
            if not cluster.separator:
                self._decide(found, cluster, np.flatnonzero(rows))
                continue
            outer, inner = rows.nonzero()
            degrees = np.bincount(outer, minlength=len(rows))
            ends = np.cumsum(degrees)
            state = self._state(found, cluster)
            own = degrees[state]
            if (own == 1).all():
                self._decide(found, cluster, inner[ends[state] - 1])
                continue
            found = {place: np.repeat(column, own) for place, column in found.items()}
            shift = ends[state] - np.cumsum(own)
            chosen = np.repeat(shift, own)
            chosen += np.arange(len(chosen))
            self._decide(found, cluster, inner[chosen])
        return found

    def _state(self, found: dict[int, Array], cluster: _Cluster) -> Array:
        """For each row the choice of the separator as a number."""
        if not cluster.separator:
            return np.zeros(1, np.intp)
        first, *others = cluster.separator
        state = found[first]
        for place in others:
            state = state * self._sizes[place] + found[place]
        return state

    def _decide(self, found: dict[int, Array], cluster: _Cluster, chosen: Array) -> None:
        """Enter the choice of a cluster, given as a number, variable by variable."""
        for place in reversed(cluster.own[1:]):
            size = self._sizes[place]
            # NumPy has a fast way to divide by one number, but not for divmod.
            outer = chosen // size
            found[place] = chosen - outer * size
            chosen = outer
        found[cluster.own[0]] = chosen

    def at_ranks(self, ranks: Array) -> dict[int, Array]:
        """The solutions with these numbers in the order of :meth:`positions`."""
        found: dict[int, Array] = {}
        left = {id(self._clusters[0]): ranks}
        for cluster in self._clusters:
            rows = cluster.rows()
            ends = np.cumsum(rows)
            state = self._state(found, cluster)
            width = rows.shape[1]
            before = ends[state * width] - rows[state, 0]
            wanted = left.pop(id(cluster)) + before
            cell = cast("Array", np.searchsorted(ends, wanted, side="right"))
            self._decide(found, cluster, cell - state * width)
            rest = wanted - (ends[cell] - rows.ravel()[cell])
            for child in reversed(cluster.below):
                ways = np.add.reduce(child.rows(), axis=1)[self._state(found, child)]
                rest, left[id(child)] = np.divmod(rest, ways)
        return found


def _places(mask: int) -> tuple[int, ...]:
    return tuple(place for place in range(mask.bit_length()) if mask >> place & 1)


def _joined(arrays: list[Array]) -> Array:
    """The product, small arrays first; of truths whether all hold."""
    arrays.sort(key=_cells)
    result = arrays[0]
    for array in arrays[1:]:
        truths = result.dtype.kind == array.dtype.kind == "b"
        result = np.logical_and(result, array) if truths else result * array
    return result


def _cells(array: Array) -> int:
    return array.size
