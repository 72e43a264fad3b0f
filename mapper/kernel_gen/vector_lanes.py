"""Maps with a vector code as loops over whole vectors.

The iterations of such a map are taken ``width`` at a time: its stores mention the lane
symbol, and its loop, if more than one vector is left, counts vectors ("Mapping Parallelism in
a Functional IR through Constraint Satisfaction" (CC'22), section 3.3).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from mapper.ast_model.index_expr import Expr, Symbol, const, symbol, the_symbol
from mapper.ast_model.loop_nest import (
    Buffer,
    Constant,
    Guarded,
    LaneSum,
    Load,
    Operate,
    Store,
    Value,
    substitute_store,
)
from mapper.ast_model.types import Memory
from mapper.ast_model.views import LANE
from mapper.kernel_gen.scheduled import Ahead, Run, Scheduled


def into_vectors(body: tuple[Scheduled, ...]) -> tuple[Scheduled, ...]:
    """The body with every run of vector code replaced by one over vectors."""
    return tuple(
        _vectors(s)
        if isinstance(s, Run)
        else replace(s, body=into_vectors(s.body))
        if isinstance(s, Ahead)
        else s
        for s in body
    )


def _vectors(run: Run) -> Run:
    width = None if run.code is None else run.code.vector_width
    if width is None:
        return replace(run, body=into_vectors(run.body))
    (loop,) = run.loops
    trip = run.trip // width
    lane = symbol(LANE, width)
    index: Expr = lane
    if trip > 1:
        index = symbol(loop.variable.name, trip) * width + lane
    counted = replace(loop, variable=replace(loop.variable, extent=const(trip)), trip=const(trip))
    stores: list[Scheduled] = []
    for statement in run.body:
        assert isinstance(statement, Store) and statement.lane is None
        moved = substitute_store(statement, {loop.variable.name: index})
        stores.append(replace(moved, lane=the_symbol(lane)))
    return Run((counted,), run.code, trip, tuple(stores))


def arrays_of_mixed_vectors(body: tuple[Scheduled, ...]) -> frozenset[str]:
    """Private buffers that are written and read as vectors of more than one width, by name.

    PoCL 3.0-rc2 (LLVM 14) loses what was stored through a pointer to one vector type when it is
    loaded through a pointer to another.
    """
    widths: defaultdict[str, set[int | None]] = defaultdict(set)
    for buffer, lane in _vector_accesses(body):
        if buffer.memory is Memory.PRIVATE and lane.extent is not None:
            widths[buffer.name].add(lane.extent.constant)
    return frozenset(name for name, found in widths.items() if len(found) > 1)


def _vector_accesses(body: tuple[Scheduled, ...]) -> Iterator[tuple[Buffer, Symbol]]:
    """Every store and load whose position mentions a lane, with that lane."""
    for statement in body:
        if isinstance(statement, Run | Ahead):
            yield from _vector_accesses(statement.body)
        elif isinstance(statement, Store):
            if statement.lane is not None and _by_lane(statement.indices):
                yield statement.buffer, statement.lane
            yield from _vector_loads(statement.value, statement.lane)


def _vector_loads(value: Value, lane: Symbol | None) -> Iterator[tuple[Buffer, Symbol]]:
    match value:
        case Constant():
            return
        case Load():
            if lane is not None and _by_lane(value.indices):
                yield value.buffer, lane
        case Guarded():
            yield from _vector_loads(value.value, lane)
        case LaneSum():
            yield from _vector_loads(value.value, value.lane)
        case Operate():
            for operand in value.operands:
                yield from _vector_loads(operand, lane)


def _by_lane(indices: tuple[Expr, ...]) -> bool:
    return any(LANE in index.names() for index in indices)
