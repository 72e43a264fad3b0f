"""Copies to local memory that start an iteration early.

A reduce with ``prefetch`` loads what its next iteration will copy to local memory into
registers, while the work-items compute with what is there: the latency of global memory is
hidden behind arithmetic. Values and their order stay as they are: only inputs, which no kernel
writes, are read ahead. Copies that come behind other statements stay where they are, and so
does one of which a work-item would keep much more than its share of the group's: the limits on
private memory do not count on it (:mod:`mapper.constraint_rules.prefetch_stages`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from mapper.ast_model.index_expr import Expr, const, symbol, the_symbol
from mapper.ast_model.loop_nest import (
    Buffer,
    Declare,
    Load,
    Loop,
    Role,
    Store,
    loads,
    substitute_store,
)
from mapper.ast_model.types import Memory
from mapper.constraint_rules.prefetch_stages import MORE_THAN_A_SHARE
from mapper.kernel_gen.barriers import Barrier
from mapper.kernel_gen.scheduled import Ahead, Run, Scheduled, trip_count
from mapper.schedule import ScheduleCode

Threads = Callable[[Run], int]


def with_prefetch(
    body: tuple[Scheduled, ...], threads: Threads, group: int
) -> tuple[Scheduled, ...]:
    """The body with every reduce that asks for it made to load ahead.

    ``threads`` are the work-items that share a run out, ``group`` all of a work-group.
    """
    result: list[Scheduled] = []
    for statement in body:
        if not isinstance(statement, Run):
            result.append(statement)
            continue
        wanted = statement.code is None and statement.trip > 1 and statement.loops
        if wanted and statement.loops[0].prefetch is not None and statement.loops[0].prefetch != 0:
            result += _ahead(statement, threads, group)
        else:
            inside = with_prefetch(statement.body, threads, group)
            result.append(replace(statement, body=inside))
    return tuple(result)


def _ahead(run: Run, threads: Threads, group: int) -> tuple[Scheduled, ...]:
    (loop,) = run.loops
    count = 0
    while count < len(run.body) and isinstance(run.body[count], Barrier | Run):
        statement = run.body[count]
        if isinstance(statement, Run) and not (
            _is_copy(statement) and _is_shared_evenly(statement, threads, group)
        ):
            break
        count += 1
    copies = [s for s in run.body[:count] if isinstance(s, Run)]
    if not copies:
        return (run,)
    following = symbol(f"{loop.variable.name}_next", loop.trip)
    stages: list[Buffer] = []
    puts: dict[int, Run] = {}
    first: list[Scheduled] = []
    later: list[Scheduled] = []
    for position, copy in enumerate(copies):
        name = f"{loop.variable.name}_ahead_{position}"
        stage, fetch, put = _halves(copy, name, threads)
        stages.append(stage)
        puts[id(copy)] = put
        first.append(_moved(fetch, {loop.variable.name: const(0)}))
        later.append(_moved(fetch, {loop.variable.name: following}))
    before = tuple(puts[id(s)] if isinstance(s, Run) else s for s in run.body[:count])
    ahead = Ahead(loop.variable, the_symbol(following), run.trip, tuple(later))
    body = (*before, ahead, *run.body[count:])
    declared = tuple(Declare(stage) for stage in stages)
    block = (*declared, *first, replace(run, body=body))
    return (Run((), ScheduleCode.SEQUENTIAL, 1, block),)


def _chain(run: Run) -> tuple[tuple[Run, ...], Store | None]:
    """Runs that stand alone in one another, and the store inside if there is nothing else."""
    if len(run.body) != 1:
        return (run,), None
    (inner,) = run.body
    if isinstance(inner, Store):
        return (run,), inner
    if not isinstance(inner, Run):
        return (run,), None
    runs, store = _chain(inner)
    return (run, *runs), store


def _is_copy(run: Run) -> bool:
    """True for loops, one of them shared out, around one store from inputs to local memory."""
    runs, store = _chain(run)
    if store is None or store.buffer.memory is not Memory.LOCAL or store.guards:
        return False
    found = list(loads(store.value))
    from_inputs = bool(found) and all(load.buffer.role is Role.INPUT for load in found)
    return from_inputs and sum(not r.is_serial for r in runs) == 1


def _is_shared_evenly(run: Run, threads: Threads, group: int) -> bool:
    """Whether no work-item copies more than what the constraints reckon with."""
    runs, _ = _chain(run)
    own = prod(part.trip if part.is_serial else -(-part.trip // threads(part)) for part in runs)
    share = -(-prod(part.trip for part in runs) // group)
    return own <= share + (MORE_THAN_A_SHARE if len(runs) > 1 else 0)


def _halves(run: Run, name: str, threads: Threads) -> tuple[Buffer, Run, Run]:
    """What a work-item copies as registers, the copy as loads into them and stores from them."""
    runs, store = _chain(run)
    assert store is not None
    lengths: list[int] = []
    indices: list[Expr] = []
    counter: Expr = const(0)
    for part in runs:
        if part.is_serial:
            lengths += [trip_count(loop) for loop in part.loops]
            indices += [symbol(loop.variable.name, loop.trip) for loop in part.loops]
        else:
            rounds = -(-part.trip // threads(part))
            counter = symbol(f"round_{name}", rounds) if rounds > 1 else const(0)
            lengths.append(rounds)
            indices.append(counter)
    dimensions = tuple(const(length) for length in lengths)
    dtype = store.buffer.dtype
    copied = next(loads(store.value)).buffer
    stem = f"next_{copied.stem or copied.name}"
    stage = Buffer(name, Memory.PRIVATE, dimensions, Role.INTERMEDIATE, dtype=dtype, stem=stem)

    def around(half: Store) -> Run:
        body: Scheduled = half
        for part in reversed(runs):
            body = replace(part, body=(body,))
            if not part.is_serial and counter != 0:
                rounds = Loop(the_symbol(counter), _length(counter), None, ())
                body = Run((rounds,), None, trip_count(rounds), (replace(body, round=counter),))
        assert isinstance(body, Run)
        return body

    places = tuple(indices)
    fetch = around(replace(store, buffer=stage, indices=places))
    return stage, fetch, around(replace(store, value=Load(stage, places)))


def _length(counter: Expr) -> Expr:
    """How many values a symbol takes."""
    extent = the_symbol(counter).extent
    assert extent is not None
    return extent


def _moved(run: Run, values: dict[str, Expr]) -> Run:
    body = tuple(
        _moved(s, values) if isinstance(s, Run) else substitute_store(_as_store(s), values)
        for s in run.body
    )
    return replace(run, body=body)


def _as_store(statement: Scheduled) -> Store:
    assert isinstance(statement, Store)
    return statement
