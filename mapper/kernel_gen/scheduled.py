"""Loop nests with a schedule: what the printer prints.

A :class:`Run` is one owner map together with the maps fused into it, or a sequential
reduce. Buffers that would be shared between threads which each need their own copy are
expanded: a local buffer by the local maps around it, a global intermediate by all parallel
maps around it. A reduce may have two of a local buffer
(:mod:`mapper.kernel_gen.double_buffers`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from mapper.ast_model.index_expr import Expr, Symbol, const, symbol, weighted_sum
from mapper.ast_model.loop_nest import (
    Buffer,
    Constant,
    Declare,
    Guarded,
    LaneSum,
    Load,
    Loop,
    LoopKernel,
    Operate,
    Statement,
    Store,
    Value,
)
from mapper.ast_model.nodes import MapId
from mapper.ast_model.types import Memory
from mapper.errors import InputError, Problem
from mapper.kernel_gen.barriers import Barrier, BarrierPlan
from mapper.kernel_gen.double_buffers import alternating, place
from mapper.schedule import Level, ScheduleCode

Codes = Mapping[MapId, ScheduleCode]


@dataclass(frozen=True, slots=True)
class Run:
    """Loops that run as one: ``code`` is the owner's; a reduce has no code.

    With ``round``, a parallel run is this one of its rounds: each thread runs one iteration.
    With ``piece``, its outermost loop is a part of one: the iterations from the first of these
    numbers to before the second.
    """

    loops: tuple[Loop, ...]
    code: ScheduleCode | None
    trip: int
    body: tuple[Scheduled, ...]
    round: Expr | None = None
    piece: tuple[int, int] | None = None

    @property
    def is_serial(self) -> bool:
        """True if one thread runs all iterations."""
        return self.code is None or not self.code.is_parallel


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is done for the iteration after this one of a loop, if there is one."""

    variable: Symbol
    following: Symbol
    trip: int
    body: tuple[Scheduled, ...]


Scheduled = Declare | Store | Run | Barrier | Ahead


@dataclass(frozen=True, slots=True)
class ScheduledKernel:
    """A kernel ready to be printed; ``groups`` and ``local_size`` are per dimension."""

    name: str
    body: tuple[Scheduled, ...]
    output: Buffer
    local_buffers: tuple[Buffer, ...]
    global_intermediates: tuple[Buffer, ...]
    global_size: tuple[int, int, int]
    local_size: tuple[int, int, int]


def trip_count(loop: Loop) -> int:
    """The trip of a specialised loop."""
    trip = loop.trip.constant
    if trip is None:
        raise InputError(
            Problem(
                f"map {loop.map_id}",
                "its trip count depends on a parameter without value",
                str(loop.trip),
            )
        )
    return trip


def schedule(
    kernel: LoopKernel, codes: Codes, local_size: tuple[int, int, int], barriers: BarrierPlan
) -> ScheduledKernel:
    """Attach codes to a specialised kernel, expand its buffers and size its launch."""
    expansions = _expansions(kernel.statements, codes, ())
    body = _schedule(kernel.statements, codes, barriers, (), expansions)
    trips: dict[tuple[Level, int], int] = {}
    _collect_trips(body, trips)
    used_local = (
        local_size[0] if _uses(trips, 0) else 1,
        local_size[1] if _uses(trips, 1) else 1,
        local_size[2] if _uses(trips, 2) else 1,
    )

    def threads(dimension: int) -> int:
        size = used_local[dimension]
        if (Level.GLOBAL, dimension) in trips:
            return -(-trips[Level.GLOBAL, dimension] // size) * size
        return trips.get((Level.WORK_GROUP, dimension), 1) * size

    return ScheduledKernel(
        kernel.name,
        body,
        kernel.output,
        tuple(b for b, _ in expansions.values() if b.memory is Memory.LOCAL),
        tuple(b for b, _ in expansions.values() if b.memory is Memory.GLOBAL),
        (threads(0), threads(1), threads(2)),
        used_local,
    )


def _uses(trips: Mapping[tuple[Level, int], int], dimension: int) -> bool:
    return any(d == dimension for _, d in trips)


def _collect_trips(body: tuple[Scheduled, ...], trips: dict[tuple[Level, int], int]) -> None:
    for statement in body:
        if isinstance(statement, Run):
            code = statement.code
            if code is not None and code.is_parallel and code.dimension is not None:
                key = (code.level, code.dimension)
                trips[key] = max(trips.get(key, 1), statement.trip)
            _collect_trips(statement.body, trips)


Expansions = dict[str, tuple[Buffer, tuple[Expr, ...]]]


def owner_code(loops: tuple[Loop, ...], position: int, codes: Codes) -> ScheduleCode | None:
    """The code of the map that owns the loop at ``position``, None for a reduce."""
    while True:
        map_id = loops[position].map_id
        if map_id is None:
            return None
        code = codes[map_id]
        if code is not ScheduleCode.FUSED:
            return code
        position -= 1
        if position < 0:
            raise InputError(Problem(f"map {map_id}", "is fused, but no map stands around it"))


def _expansions(
    statements: tuple[Statement, ...], codes: Codes, loops: tuple[Loop, ...]
) -> Expansions:
    found: Expansions = {}
    for statement in statements:
        match statement:
            case Loop():
                found |= _expansions(statement.body, codes, (*loops, statement))
            case Declare():
                buffer = statement.buffer
                if buffer.memory is Memory.PRIVATE:
                    continue
                around = [
                    loop
                    for position, loop in enumerate(loops)
                    if _multiplies(owner_code(loops, position, codes), buffer.memory)
                ]
                extra = tuple(symbol(loop.variable.name, loop.trip) for loop in around)
                lengths = tuple(loop.trip for loop in around)
                reduce = alternating(loops) if buffer.memory is Memory.LOCAL else None
                if reduce is not None:
                    extra, lengths = (*extra, place(reduce)), (*lengths, const(2))
                wider = replace(buffer, dimensions=(*lengths, *buffer.dimensions))
                found[buffer.name] = (wider, extra)
            case Store():
                continue
    return found


def _multiplies(code: ScheduleCode | None, memory: Memory) -> bool:
    """Whether each iteration of a map so scheduled needs its own copy of a buffer."""
    if code is None or not code.is_parallel:
        return False
    return memory is Memory.GLOBAL or code.level is Level.LOCAL


def _schedule(
    statements: tuple[Statement, ...],
    codes: Codes,
    barriers: BarrierPlan,
    path: tuple[int, ...],
    expansions: Expansions,
) -> tuple[Scheduled, ...]:
    result: list[Scheduled] = []
    for position, statement in enumerate(statements):
        barrier = barriers.get((path, position))
        if barrier is not None:
            result.append(barrier)
        match statement:
            case Declare():
                if statement.buffer.memory is Memory.PRIVATE:
                    result.append(statement)
            case Store():
                result.append(_expand_store(statement, expansions))
            case Loop():
                result.append(_run(statement, codes, barriers, (*path, position), expansions))
    return tuple(result)


def _run(
    loop: Loop,
    codes: Codes,
    barriers: BarrierPlan,
    path: tuple[int, ...],
    expansions: Expansions,
) -> Run:
    loops = [loop]
    code = None if loop.map_id is None else codes[loop.map_id]
    while code is not None and len(loops[-1].body) == 1:
        inner = loops[-1].body[0]
        if (
            not isinstance(inner, Loop)
            or inner.map_id is None
            or codes[inner.map_id] is not ScheduleCode.FUSED
        ):
            break
        if not inner.perfectly_nested:
            raise InputError(
                Problem(
                    f"map {inner.map_id}", "is fused, but not perfectly nested in the map around it"
                )
            )
        loops.append(inner)
        path = (*path, 0)
    trip = 1
    for item in loops:
        trip *= trip_count(item)
    body = _schedule(loops[-1].body, codes, barriers, path, expansions)
    return Run(tuple(loops), code, trip, body)


def _expand_store(store: Store, expansions: Expansions) -> Store:
    buffer, extra = expansions.get(store.buffer.name, (store.buffer, ()))
    return replace(
        store,
        buffer=buffer,
        indices=(*extra, *store.indices),
        value=_expand_value(store.value, expansions),
    )


def _expand_value(value: Value, expansions: Expansions) -> Value:
    match value:
        case Constant():
            return value
        case Load():
            buffer, extra = expansions.get(value.buffer.name, (value.buffer, ()))
            return Load(buffer, (*extra, *value.indices))
        case Guarded():
            return replace(value, value=_expand_value(value.value, expansions))
        case LaneSum():
            return replace(value, value=_expand_value(value.value, expansions))
        case Operate():
            return replace(
                value, operands=tuple(_expand_value(o, expansions) for o in value.operands)
            )


def threads_of(kernel: ScheduledKernel, run: Run) -> int:
    """Threads (or work-groups) that share the iterations of a run."""
    code = run.code
    if code is None or code.dimension is None:
        return 1
    d = code.dimension
    if code.level is Level.LOCAL:
        return kernel.local_size[d]
    if code.level is Level.WORK_GROUP:
        return kernel.global_size[d] // kernel.local_size[d]
    return kernel.global_size[d]


def stores_in(body: tuple[Scheduled, ...]) -> Iterator[Store]:
    """All stores, at whatever depth, in their order."""
    for statement in body:
        if isinstance(statement, Store):
            yield statement
        elif isinstance(statement, Run | Ahead):
            yield from stores_in(statement.body)


def flat_index(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """Row-major position of an element."""
    strides: list[int] = []
    stride = 1
    for length in reversed(buffer.dimensions):
        strides.append(stride)
        stride *= _number(buffer, length)
    return weighted_sum(zip(reversed(strides), indices, strict=True))


def element_count(buffer: Buffer) -> int:
    """Elements of a specialised buffer."""
    total = 1
    for length in buffer.dimensions:
        total *= _number(buffer, length)
    return total


def _number(buffer: Buffer, length: Expr) -> int:
    value = length.constant
    if value is None:
        raise InputError(
            Problem(buffer.name, "its size depends on a parameter without value", str(length))
        )
    return value
