"""Private buffers that a work-group shares out: each work-item declares its own part.

See :mod:`mapper.ast_model.spread`. A dimension that is indexed by a local map with one
iteration a work-item is left out of the buffer and of every access.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mapper.ast_model.loop_nest import (
    Buffer,
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
    loads,
    walk,
)
from mapper.ast_model.spread import spread_dimension
from mapper.errors import InputError, Problem
from mapper.kernel_gen.scheduled import Codes, owner_code, trip_count
from mapper.schedule import Level

Kept = Mapping[str, tuple[int, ...]]
"""By buffer: the dimensions that a work-item keeps."""


def spread_over_work_items(kernel: LoopKernel, codes: Codes) -> LoopKernel:
    """The kernel as one work-item sees it: spread dimensions are gone.

    Raises InputError where uses of a buffer are not spread alike; the rule
    private-memory-scoping keeps such mappings out.
    """
    gone: dict[str, set[int]] = {}
    buffers: dict[str, Buffer] = {}
    for statement, loops in walk(kernel.statements):
        if isinstance(statement, Declare):
            continue
        accesses = [(statement.buffer, statement.indices)]
        accesses += [(load.buffer, load.indices) for load in loads(statement.value)]
        for buffer, indices in accesses:
            if not buffer.spread:
                continue
            spread = {
                dimension
                for position, loop in enumerate(loops)
                if loop.map_id is not None
                and (dimension := spread_dimension(buffer, indices, loop)) is not None
                and trip_count(loop) > 1
                and _is_local(loops, position, codes)
            }
            if gone.setdefault(buffer.name, spread) != spread:
                raise InputError(
                    Problem(
                        f"kernel {kernel.name}",
                        f"the uses of {buffer.name}, which is private to a work-item, are not "
                        "spread over work-items alike",
                    )
                )
            buffers[buffer.name] = buffer
    if not any(gone.values()):
        return kernel
    kept = {
        name: tuple(d for d in range(len(buffers[name].dimensions)) if d not in dimensions)
        for name, dimensions in gone.items()
    }
    return replace(kernel, statements=_statements(kernel.statements, kept))


def _is_local(loops: tuple[Loop, ...], position: int, codes: Codes) -> bool:
    code = owner_code(loops, position, codes)
    return code is not None and code.is_parallel and code.level is Level.LOCAL


def _buffer(buffer: Buffer, kept: Kept) -> Buffer:
    if buffer.name not in kept:
        return buffer
    return replace(buffer, dimensions=tuple(buffer.dimensions[d] for d in kept[buffer.name]))


def _statements(statements: tuple[Statement, ...], kept: Kept) -> tuple[Statement, ...]:
    return tuple(_statement(statement, kept) for statement in statements)


def _statement(statement: Statement, kept: Kept) -> Statement:
    match statement:
        case Declare():
            return Declare(_buffer(statement.buffer, kept))
        case Loop():
            return replace(statement, body=_statements(statement.body, kept))
        case Store():
            indices = statement.indices
            if statement.buffer.name in kept:
                indices = tuple(indices[d] for d in kept[statement.buffer.name])
            return replace(
                statement,
                buffer=_buffer(statement.buffer, kept),
                indices=indices,
                value=_value(statement.value, kept),
            )


def _value(value: Value, kept: Kept) -> Value:
    match value:
        case Load():
            if value.buffer.name not in kept:
                return value
            indices = tuple(value.indices[d] for d in kept[value.buffer.name])
            return Load(_buffer(value.buffer, kept), indices)
        case Guarded() | LaneSum():
            return replace(value, value=_value(value.value, kept))
        case Operate():
            return replace(value, operands=tuple(_value(o, kept) for o in value.operands))
        case _:
            return value
