"""From a program with all choices made to OpenCL source and host plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.index_expr import Expr
from mapper.ast_model.loop_nest import Buffer, LoopKernel, LoopProgram, prepared
from mapper.ast_model.nodes import MapId, Program
from mapper.ast_model.types import Memory
from mapper.errors import InputError, Problem
from mapper.host_plan import BufferRole, HostPlan, Launch, PlannedBuffer
from mapper.kernel_gen.barriers import plan_barriers
from mapper.kernel_gen.bounds_proof import require_in_bounds
from mapper.kernel_gen.header import (
    INDEX_TYPE,
    NO_ORIGIN,
    Origin,
    comment,
    constants,
    kernel_lines,
    named_trips,
    plan_lines,
)
from mapper.kernel_gen.own_functions import OwnFunction, defined
from mapper.kernel_gen.prefetch import with_prefetch
from mapper.kernel_gen.printer import PrintedKernel, print_kernel
from mapper.kernel_gen.private_memory import private_bytes
from mapper.kernel_gen.scheduled import ScheduledKernel, element_count, schedule, threads_of
from mapper.kernel_gen.spread_registers import spread_over_work_items
from mapper.schedule import ScheduleCode


@dataclass(frozen=True, slots=True)
class Choices:
    """Everything that the solver decides: a candidate, apart from its program.

    ``local_sizes`` are work-items of a work-group a kernel, dimensions 0 to 2.
    """

    parameters: Mapping[str, int]
    codes: Mapping[MapId, ScheduleCode]
    local_sizes: Mapping[str, tuple[int, int, int]]


def generate(program: Program, choices: Choices, origin: Origin = NO_ORIGIN) -> HostPlan:
    """OpenCL source, buffers with exact bytes and launches of one candidate.

    ``origin`` goes into comments, and gives trip counts their names. Raises InputError for
    choices that the solver would not have made: a map without a code, a code 1 that is not
    perfectly nested, a conflict that no barrier can mend; and for a kernel that is not proven to
    stay inside of its arrays, which is a fault of nestmap's.
    """
    return generate_from(elaborate(program, dict(choices.parameters)), program, choices, origin)


@dataclass(frozen=True, slots=True)
class GeneratedKernel:
    """One kernel on its way to its text: its loops as a work-item sees them, scheduled, printed."""

    loops: LoopKernel
    scheduled: ScheduledKernel
    printed: PrintedKernel


def generate_from(
    loops: LoopProgram,
    program: Program,
    choices: Choices,
    origin: Origin = NO_ORIGIN,
    *,
    refuse: bool = True,
) -> HostPlan:
    """As :func:`generate`, of loops that are elaborated already with the parameters' values.

    Without ``refuse`` code that cannot be synchronised is printed all the same (see
    :func:`plan_barriers`), so that a simulator may judge what the rules keep out.
    """
    trips = named_trips(origin.symbolic)
    kernels = generated_kernels(loops, choices, trips, refuse=refuse)
    once = prepared(loops.kernels, program.constants)
    launches = [_launch(kernel, prepared=kernel.loops.name in once) for kernel in kernels]
    plan = HostPlan("", _buffers(loops, launches, kernels), tuple(launches))
    parts = [comment(plan_lines(program, origin, plan)), INDEX_TYPE]
    parts += [constants(program, choices.parameters)]
    called = frozenset[OwnFunction]().union(*(kernel.printed.functions for kernel in kernels))
    parts += [function.text for function in defined(called)]
    for kernel, launch in zip(kernels, launches, strict=True):
        own = trips.get(kernel.loops.name, {})
        lines = kernel_lines(
            kernel.loops, kernel.scheduled, kernel.printed, choices.codes, own, launch
        )
        parts.append(comment(lines) + kernel.printed.text)
    plan = replace(plan, source="\n".join(part for part in parts if part))
    if refuse:
        require_in_bounds(plan)
    return plan


def generated_kernels(
    loops: LoopProgram,
    choices: Choices,
    trips: Mapping[str, Mapping[str, Expr]],
    *,
    refuse: bool = True,
) -> tuple[GeneratedKernel, ...]:
    """The kernels of a program in order, with ``trips`` by kernel and loop variable."""
    found: list[GeneratedKernel] = []
    for kernel in loops.kernels:
        _require_codes(kernel, choices)
        kernel = spread_over_work_items(kernel, choices.codes)
        scheduled = _schedule(kernel, choices, refuse=refuse)
        printed = print_kernel(scheduled, trips.get(kernel.name, {}))
        found.append(GeneratedKernel(kernel, scheduled, printed))
    return tuple(found)


def _launch(kernel: GeneratedKernel, *, prepared: bool) -> Launch:
    scheduled = kernel.scheduled
    return Launch(
        kernel.printed.name,
        scheduled.global_size,
        scheduled.local_size,
        kernel.printed.arguments,
        sum(b.element_bytes * element_count(b) for b in scheduled.local_buffers),
        private_bytes(scheduled.body),
        prepared,
    )


def _require_codes(kernel: LoopKernel, choices: Choices) -> None:
    missing = [m for m in kernel.map_ids() if m not in choices.codes]
    if missing:
        raise InputError(
            Problem("mapping", "maps without a schedule code", ", ".join(map(str, missing)))
        )


def _schedule(kernel: LoopKernel, choices: Choices, *, refuse: bool) -> ScheduledKernel:
    local_size = choices.local_sizes.get(kernel.name, (1, 1, 1))
    barriers = plan_barriers(kernel, choices.codes, local_size, refuse=refuse)
    scheduled = schedule(kernel, choices.codes, local_size, barriers)
    group = prod(local_size)
    body = with_prefetch(scheduled.body, lambda run: threads_of(scheduled, run), group)
    return replace(scheduled, body=body)


def _buffers(
    loops: LoopProgram, launches: list[Launch], kernels: tuple[GeneratedKernel, ...]
) -> tuple[PlannedBuffer, ...]:
    """Every global buffer with its bytes and lifetime, inputs first, the result last."""

    def lifetime(name: str) -> tuple[int, int]:
        uses = [k for k, launch in enumerate(launches) if name in launch.arguments]
        return (uses[0], uses[-1]) if uses else (0, 0)

    planned: list[PlannedBuffer] = []
    for buffer in loops.inputs:
        planned.append(_planned(buffer, BufferRole.INPUT, lifetime(buffer.name)))
    for buffer in (b for kernel in kernels for b in kernel.scheduled.global_intermediates):
        planned.append(_planned(buffer, BufferRole.INTERMEDIATE, lifetime(buffer.name)))
    last = len(loops.kernels) - 1
    for position, kernel in enumerate(loops.kernels):
        role = BufferRole.OUTPUT if position == last else BufferRole.INTERMEDIATE
        planned.append(_planned(kernel.output, role, lifetime(kernel.output.name)))
    return tuple(planned)


def _planned(buffer: Buffer, role: BufferRole, lifetime: tuple[int, int]) -> PlannedBuffer:
    assert buffer.memory is Memory.GLOBAL
    shape = tuple(length.constant or 0 for length in buffer.dimensions)
    size = buffer.element_bytes * element_count(buffer)
    return PlannedBuffer(buffer.name, role, size, shape, *lifetime, buffer.dtype)
