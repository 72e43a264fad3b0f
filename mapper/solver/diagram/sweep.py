"""From constraints to a layered decision diagram, level by level.

A state stands for all partial assignments after which the same completions are valid: it holds
the values that open constraints still need (complete operands, running sums and products), and
nothing of what is decided. Partial assignments that can no longer become valid, by exact or by
interval evaluation, are dropped. So the diagram can be tiny where its paths are countless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.solver.diagram.columns import Key, Level, is_array, part_key
from mapper.solver.diagram.expression import ASSOCIATIVE, Graph
from mapper.solver.diagram.grouping import group_rows
from mapper.solver.diagram.layers import Layer
from mapper.solver.limits import Watch

Array = NDArray[Any]
# So many extensions are looked at between two looks at the clock.
_CHUNK = 1 << 18
_LEAST_CHUNK = 1 << 12
# So much is computed between two of them, counted in numbers of 64 bits; Python's take longer.
_WORK = 1 << 27
_WIDE_WORK = 64


# Of so many extensions one may become an arc, where arcs are limited.
_LOOKED_AT = 16

# Source, value and target of an arc, and the keys by which it is grouped; and how much more than
# a pointer one of Python's integers takes.
_ARC_BYTES = 64
_OBJECT = 5
# Of so many extensions, if complete constraints leave few, these alone are looked at further.
_SPARSE_FROM = 1 << 14
_SPARSE = 4


class TooManyArcsError(Exception):
    """A diagram grows larger than its caller wants it in this order of variables."""


@dataclass(frozen=True, slots=True)
class _Step:
    """What happens at a level: keys to keep with their users, and constraints to look at.

    Those to look at become ``complete`` here or stay ``open``; others are ``pending`` too.
    """

    complete: tuple[int, ...]
    open: tuple[int, ...]
    kept: tuple[tuple[Key, tuple[int, ...]], ...]
    pending: frozenset[int]


def sweep(
    graph: Graph,
    roots: Sequence[int],
    domains: Sequence[tuple[int, ...]],
    watch: Watch,
    most_arcs: int | None = None,
) -> list[Layer]:
    """The layers of all assignments for which every root holds, dead ends included.

    TooManyArcsError if there would be more than ``most_arcs``, or if many times as many had to be
    looked at for one level.
    """
    wide = any(node.wide for node in graph.nodes)
    steps = _plan(graph, roots, len(domains))
    layers: list[Layer] = []
    known: dict[Key, Array] = {}
    states = 1
    arcs = 0
    held = 0
    for level, (domain, step) in enumerate(zip(domains, steps, strict=True)):
        watch.tick(level / len(domains))
        if most_arcs is not None and states * len(domain) > _LOOKED_AT * most_arcs:
            raise TooManyArcsError
        values = np.array(domain, dtype=object if wide else np.int64)
        # Where a constraint is settled its operands are filled with zeros, even divisors.
        with np.errstate(divide="ignore", over="ignore"):
            source, value, known = _extend(graph, level, known, states, values, step, watch, wide)
        arcs += len(source)
        if most_arcs is not None and arcs > most_arcs:
            raise TooManyArcsError
        columns = list(known.values())
        watch.refuse_beyond(held + _grouping_bytes(columns, len(source)), "the decision diagram")
        first, target = group_rows(columns, len(source))
        known = {key: column[first] for key, column in known.items()}
        layer = Layer(graph.order[level], domain, states, len(first), source, value, target)
        held += layer.n_bytes
        watch.refuse_beyond(held, "the decision diagram")
        layers.append(layer)
        states = len(first)
    return layers


def _grouping_bytes(columns: Sequence[Array], arcs: int) -> int:
    """About what it takes to find out which arcs lead to one state, with the arcs themselves."""
    kept = sum(c.nbytes * (_OBJECT if c.dtype == object else 1) for c in columns)
    return kept + arcs * _ARC_BYTES


def _plan(graph: Graph, roots: Sequence[int], levels: int) -> list[_Step]:
    needs: dict[int, set[Key]] = {}
    by_level: list[list[int]] = [[] for _ in range(levels)]
    for root in roots:
        scope = graph.nodes[root].scope
        for level in range(levels):
            if scope >> level & 1:
                by_level[level].append(root)
    steps: list[_Step] = []
    for level, touched in enumerate(by_level):
        for root in touched:
            needs.pop(root, None)
            if graph.nodes[root].scope.bit_length() - 1 > level:
                found: set[Key] = set()
                _collect(graph, root, level, found)
                needs[root] = found
        users: dict[Key, list[int]] = {}
        for root, keys in needs.items():
            for key in keys:
                users.setdefault(key, []).append(root)
        kept = tuple((key, tuple(using)) for key, using in users.items())
        complete = tuple(root for root in touched if root not in needs)
        still = tuple(root for root in touched if root in needs)
        steps.append(_Step(complete, still, kept, frozenset(needs)))
    return steps


def _collect(graph: Graph, index: int, level: int, found: set[Key]) -> None:
    """The keys that the value of a node still depends on after a level."""
    node = graph.nodes[index]
    if not node.scope & ((2 << level) - 1):
        return
    if node.scope.bit_length() - 1 <= level:
        found.add(index)
        return
    rest = node.children
    if node.kind in ASSOCIATIVE:
        done = tuple(c for c in rest if graph.nodes[c].scope.bit_length() - 1 <= level)
        key = part_key(node.kind, done)
        if key is not None:
            found.add(key)
        rest = tuple(c for c in rest if c not in done)
    for child in rest:
        _collect(graph, child, level, found)


def _extend(
    graph: Graph,
    level: int,
    known: dict[Key, Array],
    states: int,
    values: Array,
    step: _Step,
    watch: Watch,
    wide: bool,
) -> tuple[Array, Array, dict[Key, Array]]:
    """Every state with every value, less what cannot become valid: arcs and kept columns."""
    work = len(graph.nodes) * (_WIDE_WORK if wide else 1)
    at_once = min(_CHUNK, max(_LEAST_CHUNK, _WORK // max(1, work)))
    rows = max(1, at_once // len(values))
    if states <= rows:
        return _extend_rows(graph, level, known, states, values, step, watch, wide)
    sources: list[Array] = []
    chosen: list[Array] = []
    kept: list[dict[Key, Array]] = []
    bytes_held = 0
    for start in range(0, states, rows):
        watch.tick()
        part = {key: column[start : start + rows] for key, column in known.items()}
        count = min(rows, states - start)
        source, value, columns = _extend_rows(graph, level, part, count, values, step, watch, wide)
        sources.append(source + start)
        chosen.append(value)
        kept.append(columns)
        bytes_held += _grouping_bytes(list(columns.values()), len(source))
        watch.refuse_beyond(bytes_held, "one level of the decision diagram")
    keys: dict[Key, None] = {}
    for columns in kept:
        keys |= dict.fromkeys(columns)
    joined = {
        key: np.concatenate(
            [
                columns.get(key, np.zeros(len(source), np.bool_))
                for columns, source in zip(kept, sources, strict=True)
            ]
        )
        for key in keys
    }
    return np.concatenate(sources), np.concatenate(chosen), joined


def _extend_rows(
    graph: Graph,
    level: int,
    known: dict[Key, Array],
    states: int,
    values: Array,
    step: _Step,
    watch: Watch,
    wide: bool,
) -> tuple[Array, Array, dict[Key, Array]]:
    columns_of = {key: column[:, None] for key, column in known.items()}
    at = Level(graph, level, columns_of, values[None, :], wide)
    shape = (states, len(values))
    keep: Any = True
    sparse: tuple[Array, Array] | None = None
    sparse_from = _SPARSE_FROM // (16 if wide else 1)
    left = list(step.complete)
    while left:
        keep = np.logical_and(keep, _bounds(at, left.pop(0), columns_of)[1])
        if not (left or step.open) or not is_array(keep) or keep.size == 1:
            continue
        if shape[0] * shape[1] < sparse_from or sparse is not None:
            continue
        if np.count_nonzero(keep) * (shape[0] * shape[1] // keep.size) * _SPARSE <= (
            shape[0] * shape[1]
        ):
            # What cannot become valid anyway is not looked at again: survivors are rows now.
            source, value = sparse = _survivors(keep, shape)
            columns_of = {key: column[source] for key, column in columns_of.items()}
            at = Level(graph, level, columns_of, values[value][:, None], wide)
            shape, keep = (len(source), 1), True
    decided: dict[int, Any] = {}
    for root in step.open:
        watch.tick()
        low, high = _bounds(at, root, columns_of)
        keep = np.logical_and(keep, high)
        if is_array(low):
            decided[root] = low
    for key, column in columns_of.items():
        if isinstance(key, tuple) and key[0] == "decided":
            root = key[1]
            assert isinstance(root, int)
            if root in step.pending and root not in decided:
                decided[root] = column
    source, value = _survivors(keep, shape)
    columns: dict[Key, Array] = {}
    settled_rows = {root: _pick(low, shape, source, value) for root, low in decided.items()}
    settled_rows = {root: rows for root, rows in settled_rows.items() if rows.any()}
    for key, users in step.kept:
        column = _pick(at.get(key), shape, source, value)
        if settled_rows and all(user in settled_rows for user in users):
            # Nobody needs this where its constraints hold anyway: let such rows be equal.
            free = settled_rows[users[0]]
            for user in users[1:]:
                free = free & settled_rows[user]
            column = np.where(free, np.zeros((), column.dtype), column)
        columns[key] = column
    for root, rows in settled_rows.items():
        columns["decided", root] = rows
    if sparse is not None:
        source, value = sparse[0][source], sparse[1][source]
    return source, value, columns


def _bounds(at: Level, root: int, columns_of: dict[Key, Array]) -> tuple[Any, Any]:
    """Whether a constraint holds whatever follows, and whether it can hold."""
    low, high = at.bounds(root)
    settled = columns_of.get(("decided", root))
    if settled is None:
        return low, high
    return np.logical_or(settled, low), np.logical_or(settled, high)


def _survivors(keep: Any, shape: tuple[int, int]) -> tuple[Array, Array]:
    """Rows and values of the extensions to keep, in the order of the rows."""
    states, values = shape
    # One truth for all extensions may come as a column of one row and one value.
    if not is_array(keep) or keep.size == 1:
        if not keep:
            return np.zeros(0, np.intp), np.zeros(0, np.intp)
        return (
            np.repeat(np.arange(states), values),
            np.tile(np.arange(values), states),
        )
    if keep.shape == shape:
        flat = np.flatnonzero(keep)
        source = flat // values
        return source, flat - source * values
    if keep.shape[0] == 1:
        chosen = np.flatnonzero(keep[0])
        return np.repeat(np.arange(states), len(chosen)), np.tile(chosen, states)
    alive = np.flatnonzero(keep[:, 0])
    return np.repeat(alive, values), np.tile(np.arange(values), len(alive))


def _pick(column: Any, shape: tuple[int, int], source: Array, value: Array) -> Array:
    """The entries of a column of broadcast shape at the given rows and values."""
    if not is_array(column):
        return np.full(len(source), column)
    if column.shape == shape:
        if shape[1] == 1:
            return column[:, 0][source]
        return column.ravel()[source * shape[1] + value]
    if column.shape[1] == 1:
        return column[:, 0][source if column.shape[0] > 1 else np.zeros_like(source)]
    return column[0][value]
