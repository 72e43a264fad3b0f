"""Loops that copy with a border, in pieces that are all border or all inside.

A loop that asks of each element whether it lies inside is not vectorised: on two cores with
AVX-512 it copies VGG-16's first image three times slower (docs/benchmarks.md, "Kernels on a
processor").
What a guard says of the loop's variable alone is known before the loop runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from mapper.ast_model.index_expr import Symbol, const, symbol
from mapper.ast_model.loop_nest import (
    Constant,
    Guard,
    Guarded,
    Store,
    Value,
    dtype_of,
    substitute_store,
)
from mapper.ast_model.types import Memory
from mapper.kernel_gen.scheduled import Ahead, Run, Scheduled, trip_count

#: Compilers unroll a shorter loop as it is.
SHORTEST = 8


def split_borders(body: tuple[Scheduled, ...]) -> tuple[Scheduled, ...]:
    """The body with every copy of one thread that has a border in pieces."""
    return tuple(piece for statement in body for piece in _split(statement))


def _split(statement: Scheduled) -> tuple[Scheduled, ...]:
    match statement:
        case Run():
            store = _copied(statement)
            if store is not None:
                return tuple(_pieces(statement, store))
            return (replace(statement, body=split_borders(statement.body)),)
        case Ahead():
            return (replace(statement, body=split_borders(statement.body)),)
        case _:
            return (statement,)


def _copied(run: Run) -> Store | None:
    """What a loop of one thread stores to memory that others see, if that is all it does."""
    if not run.loops or len(run.body) != 1:
        return None
    loop, (only,) = run.loops[0], run.body
    vectors = run.code is not None and run.code.vector_width is not None
    if not run.is_serial or vectors or loop.unroll is not None or trip_count(loop) < SHORTEST:
        return None
    if not isinstance(only, Store) or only.buffer.memory is Memory.PRIVATE:
        return None
    return only if isinstance(only.value, Guarded) else None


def _pieces(run: Run, store: Store) -> Iterator[Run]:
    loop = run.loops[0]
    name, trip = loop.variable.name, trip_count(loop)
    cuts = {cut for guard in _guards(store) for cut in _ends(guard, loop.variable)}
    ends = sorted({0, trip} | {cut for cut in cuts if 0 < cut < trip})
    if len(ends) == 2:
        yield run
        return
    for start, end in pairwise(ends):
        length = const(end - start)
        place = symbol(name, end - start) + start if end - start > 1 else const(start)
        known = replace(store, value=_known(store.value, loop.variable, start))
        yield replace(
            run,
            loops=(
                replace(loop, variable=replace(loop.variable, extent=length), trip=length),
                *run.loops[1:],
            ),
            trip=run.trip // trip * (end - start),
            body=(substitute_store(known, {name: place}),),
            piece=(start, end),
        )


def _guards(store: Store) -> Iterator[Guard]:
    value = store.value
    while isinstance(value, Guarded):
        yield value.guard
        value = value.value


def _known(value: Value, variable: Symbol, start: int) -> Value:
    """What is stored in the piece that starts here, without guards that it decides."""
    if not isinstance(value, Guarded):
        return value
    ends = _ends(value.guard, variable)
    if ends and not ends[0] <= start < ends[1]:
        return _border(value)
    inner = _known(value.value, variable, start)
    # Nothing but border is left, whatever the other guards say.
    decided = ends or inner == _border(value)
    return inner if decided else replace(value, value=inner)


def _border(value: Guarded) -> Constant:
    return Constant(value.otherwise, dtype_of(value))


def _ends(guard: Guard, variable: Symbol) -> tuple[int, int] | tuple[()]:
    """Where the guard begins and ceases to hold, if it speaks of this variable alone."""
    parts = guard.index.coefficient(variable)
    if parts is None or parts[0] != 1:
        return ()
    offset, limit = parts[1].constant, guard.limit.constant
    return () if offset is None or limit is None else (-offset, limit - offset)
