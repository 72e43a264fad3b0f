"""What rules of suitability ask of a kernel: its copies, its work-items, what groups share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mapper.ast_model.loop_nest import (
    Buffer,
    Declare,
    Guarded,
    Load,
    Loop,
    LoopKernel,
    Store,
    Value,
    walk,
)
from mapper.ast_model.nodes import MapId
from mapper.ast_model.types import Memory
from mapper.constraint_rules.predicate import Predicate, all_of
from mapper.constraint_rules.runs import owner_in


@dataclass(frozen=True, slots=True)
class Copy:
    """A statement that moves elements from global memory as they are; ``maps`` are outside in."""

    target: Buffer
    loops: tuple[Loop, ...]


def copies(kernel: LoopKernel) -> Iterator[Copy]:
    """Every copy of a kernel from global memory to memory that work-items share."""
    for statement, loops in walk(kernel.statements):
        if (
            isinstance(statement, Store)
            and statement.buffer.memory is not Memory.PRIVATE
            and _moved(statement.value)
        ):
            yield Copy(statement.buffer, loops)


def only_copies(kernel: LoopKernel) -> bool:
    """Whether a kernel has nothing but copies, each element by itself."""
    stores = [s for s, _ in walk(kernel.statements) if isinstance(s, Store)]
    return len(stores) == len(list(copies(kernel))) and not any(
        isinstance(s, Declare) for s, _ in walk(kernel.statements)
    )


def _moved(value: Value) -> bool:
    while isinstance(value, Guarded):
        value = value.value
    return isinstance(value, Load) and value.buffer.memory is Memory.GLOBAL


def shared_scopes(kernel: LoopKernel) -> Iterator[tuple[Buffer, tuple[Loop, ...]]]:
    """Buffers that a work-group holds together, with the loops around each: local ones, and
    private ones that are spread over its work-items."""
    for statement, loops in walk(kernel.statements):
        if isinstance(statement, Declare) and (
            statement.buffer.memory is Memory.LOCAL or statement.buffer.spread
        ):
            yield statement.buffer, loops


def own_scopes(kernel: LoopKernel) -> Iterator[tuple[Buffer, tuple[Loop, ...]]]:
    """Private buffers of one work-item, with the loops around each."""
    for statement, loops in walk(kernel.statements):
        if (
            isinstance(statement, Declare)
            and statement.buffer.memory is Memory.PRIVATE
            and not statement.buffer.spread
        ):
            yield statement.buffer, loops


def map_ids(loops: tuple[Loop, ...]) -> tuple[MapId, ...]:
    """The maps among loops, outermost first."""
    return tuple(loop.map_id for loop in loops if loop.map_id is not None)


def owned(loops: tuple[Loop, ...], codes: frozenset[int], start: int = 0) -> Predicate:
    """Every map among loops from ``start`` on is owned by one with such a code."""
    return all_of(
        *(
            owner_in(loops, position, codes)
            for position in range(start, len(loops))
            if loops[position].map_id is not None
        )
    )
