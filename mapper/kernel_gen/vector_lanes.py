"""Maps with a vector code as loops over whole vectors.

The iterations of such a map are taken ``width`` at a time: its stores mention the lane
symbol, and its loop, if more than one vector is left, counts vectors ("Mapping Parallelism in
a Functional IR through Constraint Satisfaction" (CC'22), section 3.3).
"""

from __future__ import annotations

from dataclasses import replace

from mapper.ast_model.index_expr import Expr, const, symbol, the_symbol
from mapper.ast_model.loop_nest import (
    Store,
    substitute_store,
)
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
