"""Maps with a vector code as loops over whole vectors.

The iterations of such a map are taken ``width`` at a time: its stores mention the lane
symbol, and its loop, if more than one vector is left, counts vectors ("Mapping Parallelism in
a Functional IR through Constraint Satisfaction" (CC'22), section 3.3).
"""

from __future__ import annotations

from dataclasses import replace

from mapper.ast_model.index_expr import Expr, Symbol, const, symbol, the_symbol
from mapper.ast_model.loop_nest import Buffer, Store, guards_of, loads, substitute_store
from mapper.ast_model.types import Memory
from mapper.ast_model.views import LANE
from mapper.kernel_gen.c_values import VECTOR_WIDTHS, lane_start, vectors_before
from mapper.kernel_gen.joined_stores import WIDEST
from mapper.kernel_gen.scheduled import (
    Ahead,
    Run,
    Scheduled,
    flat_index,
    stores_in,
    trip_count,
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


def widest_vector(body: tuple[Scheduled, ...]) -> int:
    """Lanes of the widest vector that the body computes with; 1 if there is none."""
    return max((_width(store) for store in stores_in(body)), default=1)


def copies_in_vectors(body: tuple[Scheduled, ...], widest: int) -> tuple[Scheduled, ...]:
    """The body with every copy of one thread, whose innermost loop goes over neighbours, over
    vectors; of what :func:`into_vectors` left, and only for vectors that are wider than all devices
    have and no wider than ``widest``."""
    return tuple(
        _copied_in_vectors(s, widest)
        if isinstance(s, Run)
        else replace(s, body=copies_in_vectors(s.body, widest))
        if isinstance(s, Ahead)
        else s
        for s in body
    )


def _copied_in_vectors(run: Run, widest: int) -> Run:
    store = run.body[0] if len(run.body) == 1 else None
    if not isinstance(store, Store) or not run.loops or not run.is_serial:
        return replace(run, body=copies_in_vectors(run.body, widest))
    last = run.loops[-1]
    width = trip_count(last)
    fits = width in VECTOR_WIDTHS and WIDEST < width <= widest and last.unroll is None
    if not fits or store.lane is not None or not _over_neighbours(store, last.variable):
        return run
    lane = symbol(LANE, width)
    moved = substitute_store(store, {last.variable.name: lane})
    inner = replace(moved, lane=the_symbol(lane))
    return replace(run, loops=run.loops[:-1], trip=run.trip // width, body=(inner,))


def _over_neighbours(store: Store, variable: Symbol) -> bool:
    """Whether one iteration after the other writes the next element, from what is either the next
    element too or the same, and no guard has a say in that."""

    def step(buffer: Buffer, indices: tuple[Expr, ...]) -> int | None:
        place = flat_index(buffer, indices)
        if variable.name not in place.names():
            return 0
        parts = place.coefficient(variable)
        return None if parts is None or variable.name in parts[1].names() else parts[0].constant

    guards = (*store.guards, *guards_of(store.value))
    return (
        step(store.buffer, store.indices) == 1
        and not any(variable.name in guard.index.names() for guard in guards)
        and all(step(load.buffer, load.indices) in (0, 1) for load in loads(store.value))
        and not any(load.buffer.name == store.buffer.name for load in loads(store.value))
        # Lanes of a sum over lanes have the name that this loop would get.
        and not any(LANE in guard.index.names() for guard in guards)
        and not any(LANE in i.names() for load in loads(store.value) for i in load.indices)
    )


def _width(store: Store) -> int:
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
        fits = width in VECTOR_WIDTHS and width > WIDEST
        start = lane_start(flat_index(buffer, indices), width) if fits else None
        whole = start is not None and vectors_before(start, width) is not None
        if not whole or widths.setdefault(buffer.name, width) != width:
            mixed.add(buffer.name)

    for store in stores_in(body):
        # A guard that asks of single lanes takes a vector apart.
        apart = any(
            LANE in guard.index.names() for guard in (*store.guards, *guards_of(store.value))
        )
        width = 1 if apart else _width(store)
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
