"""Copies that one thread makes in a loop over neighbours, as copies of whole vectors.

Where a kernel computes in vectors that are wider than all devices have, what it holds in private
arrays between its loops goes in and out in such vectors too: element by element would take each
vector apart ("Kernels on a processor", docs/benchmarks.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mapper.ast_model.index_expr import Expr, Symbol, symbol, the_symbol
from mapper.ast_model.loop_nest import (
    Buffer,
    Constant,
    Guarded,
    LaneSum,
    Load,
    Operate,
    Store,
    Value,
    guards_of,
    loads,
    substitute_store,
)
from mapper.ast_model.nodes import CONVERSIONS, Op
from mapper.ast_model.types import Memory
from mapper.ast_model.views import LANE
from mapper.kernel_gen.c_values import VECTOR_WIDTHS
from mapper.kernel_gen.joined_stores import WIDEST_EVERYWHERE
from mapper.kernel_gen.scheduled import Ahead, Run, Scheduled, flat_index, stores_in, trip_count
from mapper.kernel_gen.vector_lanes import lanes_of, vector_arrays

#: What a copy may do on the way: each is one instruction, whatever the vector.
_ON_THE_WAY = frozenset((Op.ADD, Op.SUB, Op.MUL, Op.MAX, Op.MIN, *CONVERSIONS))


def copies_in_vectors(
    body: tuple[Scheduled, ...], registers: frozenset[str]
) -> tuple[Scheduled, ...]:
    """The body with every copy of one thread, whose innermost loop goes over neighbours, over
    vectors; of what :func:`~mapper.kernel_gen.vector_lanes.into_vectors` left.

    Only in vectors that are wider than all devices have and no wider than those that the body
    computes with already, and only where private arrays beside ``registers`` become arrays of
    vectors by it: all else would be calls of ``vload`` and ``vstore``.
    """
    widest = max((w for s in stores_in(body) if (w := lanes_of(s)) in VECTOR_WIDTHS), default=1)
    apart: frozenset[str] = frozenset()
    while True:
        done = _in_vectors(body, widest, apart)
        whole = vector_arrays(done, registers)
        # An array that loses one copy may cost another array its last one.
        more = apart | {n for n in _private_arrays(done) if n not in whole and n not in registers}
        if more == apart:
            return done
        apart = more


def _private_arrays(body: tuple[Scheduled, ...]) -> Iterator[str]:
    for store in stores_in(body):
        for buffer in (store.buffer, *(load.buffer for load in loads(store.value))):
            if buffer.memory is Memory.PRIVATE and buffer.dimensions:
                yield buffer.name


def _in_vectors(
    body: tuple[Scheduled, ...], widest: int, apart: frozenset[str]
) -> tuple[Scheduled, ...]:
    return tuple(
        _copied(s, widest, apart)
        if isinstance(s, Run)
        else replace(s, body=_in_vectors(s.body, widest, apart))
        if isinstance(s, Ahead)
        else s
        for s in body
    )


def _copied(run: Run, widest: int, apart: frozenset[str]) -> Run:
    store = run.body[0] if len(run.body) == 1 else None
    if not isinstance(store, Store) or not run.loops or not run.is_serial:
        return replace(run, body=_in_vectors(run.body, widest, apart))
    last = run.loops[-1]
    width = trip_count(last)
    fits = width in VECTOR_WIDTHS and WIDEST_EVERYWHERE < width <= widest and last.unroll is None
    if not fits or not _over_neighbours(store, last.variable, apart):
        return run
    lane = symbol(LANE, width)
    moved = substitute_store(store, {last.variable.name: lane})
    inner = replace(moved, lane=the_symbol(lane))
    return replace(run, loops=run.loops[:-1], trip=run.trip // width, body=(inner,))


def _over_neighbours(store: Store, variable: Symbol, apart: frozenset[str]) -> bool:
    """Whether one iteration after the other writes the next element, from what is either the next
    element too or the same, with no guard that has a say in that and no array that is apart."""

    def step(buffer: Buffer, indices: tuple[Expr, ...]) -> int | None:
        place = flat_index(buffer, indices)
        if variable.name not in place.names():
            return 0
        parts = place.coefficient(variable)
        if parts is None or variable.name in parts[1].names() or buffer.name in apart:
            return None
        return parts[0].constant

    read = list(loads(store.value))
    guards = (*store.guards, *guards_of(store.value))
    return (
        store.lane is None
        and _is_copy(store.value)
        and step(store.buffer, store.indices) == 1
        and not any(variable.name in guard.index.names() for guard in guards)
        and all(step(load.buffer, load.indices) in (0, 1) for load in read)
        and not any(load.buffer.name == store.buffer.name for load in read)
    )


def _is_copy(value: Value) -> bool:
    """Whether elements are passed on one by one. A sum over lanes is none: its lanes have the name
    that the copy's get."""
    match value:
        case Constant() | Load():
            return True
        case Guarded():
            return _is_copy(value.value)
        case Operate():
            return value.op in _ON_THE_WAY and all(_is_copy(o) for o in value.operands)
        case LaneSum():
            return False
