"""Maps with a vector code as loops over whole vectors.

The iterations of such a map are taken ``width`` at a time: its stores mention the lane
symbol, and its loop, if more than one vector is left, counts vectors ("Mapping Parallelism in
a Functional IR through Constraint Satisfaction" (CC'22), section 3.3).
"""

from __future__ import annotations

from dataclasses import replace

from mapper.ast_model.index_expr import Expr, const, symbol, the_symbol
from mapper.ast_model.loop_nest import Buffer, Store, guards_of, loads, substitute_store
from mapper.ast_model.types import Memory
from mapper.ast_model.views import LANE
from mapper.kernel_gen.c_values import VECTOR_WIDTHS, lane_start, vectors_before
from mapper.kernel_gen.joined_stores import WIDEST_EVERYWHERE
from mapper.kernel_gen.scheduled import (
    Ahead,
    Run,
    Scheduled,
    flat_index,
    stores_in,
)


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


def lanes_of(store: Store) -> int:
    """Lanes of the vectors that a store computes with; 1 if it has none."""
    extent = None if store.lane is None else store.lane.extent
    return 1 if extent is None else extent.constant or 1


def vector_arrays(body: tuple[Scheduled, ...], registers: frozenset[str]) -> dict[str, int]:
    """Private arrays beside ``registers`` of which every access is a whole vector of one width,
    wider than all devices have, with the width: they can be arrays of vectors.

    PoCL's ``vload`` and ``vstore`` are calls (:mod:`mapper.kernel_gen.own_functions`).
    """
    widths: dict[str, int] = {}
    mixed: set[str] = set()

    def note(buffer: Buffer, indices: tuple[Expr, ...], width: int) -> None:
        if buffer.memory is not Memory.PRIVATE or not buffer.dimensions:
            return
        if buffer.name in registers:
            return
        fits = width in VECTOR_WIDTHS and width > WIDEST_EVERYWHERE
        start = lane_start(flat_index(buffer, indices), width) if fits else None
        whole = start is not None and vectors_before(start, width) is not None
        if not whole or widths.setdefault(buffer.name, width) != width:
            mixed.add(buffer.name)

    for store in stores_in(body):
        # A guard that asks of single lanes takes a vector apart.
        apart = any(
            LANE in guard.index.names() for guard in (*store.guards, *guards_of(store.value))
        )
        width = 1 if apart else lanes_of(store)
        note(store.buffer, store.indices, width)
        for load in loads(store.value):
            note(load.buffer, load.indices, width)
    return {name: width for name, width in widths.items() if name not in mixed}


def vector_registers(body: tuple[Scheduled, ...], registers: frozenset[str]) -> dict[str, int]:
    """Register arrays whose accesses are whole vectors or single lanes of them, with the width."""
    widths: dict[str, int] = {}
    mixed: set[str] = set()

    def note(buffer: Buffer, indices: tuple[Expr, ...]) -> None:
        if buffer.name not in registers:
            return
        width = buffer.dimensions[-1].constant if buffer.dimensions else None
        if indices and str(indices[-1]) == LANE and width in VECTOR_WIDTHS:
            assert width is not None
            widths[buffer.name] = width
        elif not indices or indices[-1].constant is None:
            mixed.add(buffer.name)

    for store in stores_in(body):
        note(store.buffer, store.indices)
        for load in loads(store.value):
            note(load.buffer, load.indices)
    return {name: width for name, width in widths.items() if name not in mixed}
