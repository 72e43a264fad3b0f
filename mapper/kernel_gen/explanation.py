"""What became of a program under a mapping, as data: what ``nestmap kernel --explain`` shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mapper.ast_model.digits import combine_digits
from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.index_expr import Expr, as_they_are
from mapper.ast_model.loop_nest import (
    Buffer,
    Declare,
    Loop,
    LoopKernel,
    LoopProgram,
    Statement,
    loads,
    walk,
)
from mapper.ast_model.nodes import MapId, Program
from mapper.errors import NestmapError
from mapper.kernel_gen.generate import Choices, GeneratedKernel, generated_kernels
from mapper.kernel_gen.header import Origin, barriers_of, named_trips, private_buffers
from mapper.kernel_gen.private_memory import private_bytes
from mapper.kernel_gen.scheduled import element_count, flat_index
from mapper.schedule import ScheduleCode


@dataclass(frozen=True, slots=True)
class ExplainedLoop:
    """A map or reduce: how often it runs, how it is scheduled and where it reads and writes.

    ``trip`` is the trip count in sizes and parameters, ``iterations`` the number. A reduce has
    no schedule, and no map id.
    """

    name: str
    depth: int
    schedule: str
    trip: str
    iterations: int
    reads: tuple[str, ...]
    writes: str


@dataclass(frozen=True, slots=True)
class ExplainedAccess:
    """A read or write of a buffer: the position of the element, before and after simplification.

    Divisions are floor divisions. ``before`` is what the layout changes of the program say.
    """

    identifier: str
    is_write: bool
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class ExplainedBuffer:
    """A local or private buffer of a kernel; private ones may be variables in registers."""

    identifier: str
    buffer: str
    bytes: int
    in_registers: bool = False


@dataclass(frozen=True, slots=True)
class ExplainedBarrier:
    """A barrier with the memories that it fences and its reasons."""

    memories: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExplainedKernel:
    """All of one kernel; ``local_bytes`` a work-group, the other bytes a work-item.

    ``private_bytes`` are alive at once at most, ``register_bytes`` those of all variables.
    """

    name: str
    global_size: tuple[int, int, int]
    local_size: tuple[int, int, int]
    loops: tuple[ExplainedLoop, ...]
    accesses: tuple[ExplainedAccess, ...]
    barriers: tuple[ExplainedBarrier, ...]
    local: tuple[ExplainedBuffer, ...]
    private: tuple[ExplainedBuffer, ...]
    local_bytes: int
    private_bytes: int
    register_bytes: int


def explain(program: Program, choices: Choices, origin: Origin) -> tuple[ExplainedKernel, ...]:
    """The kernels of a candidate; InputError as :func:`mapper.kernel_gen.generate.generate`."""
    loops = elaborate(program, dict(choices.parameters))
    trips = named_trips(origin.symbolic)
    literal = _elaborated_as_written(program, choices)
    kernels = generated_kernels(loops, choices, trips)
    return tuple(
        _explained(
            kernel,
            loops.kernels[position],
            None if literal is None else literal.kernels[position],
            choices.codes,
            trips.get(kernel.loops.name, {}),
        )
        for position, kernel in enumerate(kernels)
    )


def _elaborated_as_written(program: Program, choices: Choices) -> LoopProgram | None:
    """The loops with every division of an index left in place."""
    try:
        with as_they_are():
            return elaborate(program, dict(choices.parameters))
    except NestmapError:
        # That two indices are equal is sometimes only seen once they are simplified.
        return None


def _explained(
    kernel: GeneratedKernel,
    loops: LoopKernel,
    literal: LoopKernel | None,
    codes: Mapping[MapId, ScheduleCode],
    trips: Mapping[str, Expr],
) -> ExplainedKernel:
    scheduled, printed = kernel.scheduled, kernel.printed
    names = printed.names
    local = tuple(
        ExplainedBuffer(names.of(b), b.name, b.element_bytes * element_count(b))
        for b in scheduled.local_buffers
    )
    private = tuple(
        ExplainedBuffer(
            names.of(b),
            b.name,
            b.element_bytes * element_count(b),
            b.name in printed.registers,
        )
        for b in private_buffers(scheduled.body)
    )
    return ExplainedKernel(
        kernel.loops.name,
        scheduled.global_size,
        scheduled.local_size,
        tuple(_loops(loops.statements, codes, trips, 0)),
        tuple(dict.fromkeys(_accesses(kernel, loops, literal))),
        tuple(
            ExplainedBarrier(
                tuple(sorted(memory.value for memory in barrier.memories)),
                tuple(reason.text(names.of(reason.buffer)) for reason in barrier.reasons),
            )
            for barrier in barriers_of(scheduled.body)
        ),
        local,
        private,
        sum(b.bytes for b in local),
        private_bytes(scheduled.body),
        sum(b.bytes for b in private if b.in_registers),
    )


def _loops(
    statements: tuple[Statement, ...],
    codes: Mapping[MapId, ScheduleCode],
    trips: Mapping[str, Expr],
    depth: int,
) -> Iterator[ExplainedLoop]:
    for statement in statements:
        if not isinstance(statement, Loop):
            continue
        name = statement.variable.name
        is_map = statement.map_id is not None
        yield ExplainedLoop(
            str(statement.map_id) if is_map else f"reduce {name}",
            depth,
            codes[statement.map_id].short_name if statement.map_id is not None else "",
            str(trips.get(name, statement.trip)),
            statement.trip.constant or 0,
            tuple(sorted(memory.value for memory in statement.reads)),
            statement.writes.value if is_map else "",
        )
        yield from _loops(statement.body, codes, trips, depth + 1)


def _accesses(
    kernel: GeneratedKernel, loops: LoopKernel, literal: LoopKernel | None
) -> Iterator[ExplainedAccess]:
    """Every access of an array in program order, the result of a statement before its operands."""
    names = kernel.printed.names
    found = list(_places(loops))
    written = found if literal is None else list(_places(literal))
    if [place[:2] for place in written] != [place[:2] for place in found]:
        written = found
    for (_, is_write, buffer, indices), (_, _, _, before) in zip(found, written, strict=True):
        if buffer.dimensions:
            after = combine_digits(flat_index(buffer, indices))
            yield ExplainedAccess(
                names.of(buffer), is_write, str(flat_index(buffer, before)), str(after)
            )


Place = tuple[str, bool, Buffer, tuple[Expr, ...]]


def _places(kernel: LoopKernel) -> Iterator[Place]:
    for statement, _ in walk(kernel.statements):
        if isinstance(statement, Declare):
            continue
        yield statement.buffer.name, True, statement.buffer, statement.indices
        for load in loads(statement.value):
            yield load.buffer.name, False, load.buffer, load.indices
