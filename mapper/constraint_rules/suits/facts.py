"""What rules of suitability ask of a kernel: its copies, its work-items, what groups share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from mapper.constraint_rules.owners import used_in
from mapper.constraint_rules.predicate import Predicate, all_of, any_of, negate
from mapper.constraint_rules.runs import map_id, owner_in


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
    """Private buffers of one work-item, with the loops around each.

    Not those within the scope of another one: maps between are loops of the work-item.
    """
    scopes: list[tuple[Loop, ...]] = []
    for statement, loops in walk(kernel.statements):
        if (
            isinstance(statement, Declare)
            and statement.buffer.memory is Memory.PRIVATE
            and not statement.buffer.spread
        ):
            if not any(_inside(loops, scope) for scope in scopes):
                yield statement.buffer, loops
            scopes.append(loops)


def shared_depth(kernel: LoopKernel, loops: tuple[Loop, ...]) -> int:
    """How many of these loops stand around the innermost thing that their group shares."""
    depths = [len(scope) for _, scope in shared_scopes(kernel) if _inside(loops, scope)]
    return max(depths, default=0)


def _inside(loops: tuple[Loop, ...], scope: tuple[Loop, ...]) -> bool:
    """Whether loops go deeper than a scope."""
    within = zip(loops, scope, strict=False)
    return len(loops) > len(scope) and all(one is other for one, other in within)


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


def shared_out(
    loops: tuple[Loop, ...],
    codes: frozenset[int],
    levels: Sequence[Sequence[int]],
    start: int = 0,
) -> Predicate:
    """Every map among loops from ``start`` on is owned by one with such a code, run by run.

    A run of maps that could be fused may stay out as a whole where there are as many other runs
    as one of the ``levels`` has codes, and these use all of them: then nothing is left for it.
    """
    parts: list[Predicate] = []
    runs = _runs(loops, start)
    for run in runs:
        own = [owner_in(loops, position, codes) for position in run]
        others = [map_id(loops[position]) for other in runs if other != run for position in other]
        used_up = any_of(
            *(
                all_of(*(used_in(others, (code,)) for code in level))
                for level in levels
                if len(level) < len(runs)
            )
        )
        none = all_of(*(negate(owner) for owner in own))
        parts.append(any_of(all_of(*own), all_of(none, used_up)))
    return all_of(*parts)


def _runs(loops: tuple[Loop, ...], start: int) -> list[list[int]]:
    """The positions of maps, those together that stand perfectly nested in one another."""
    found: list[list[int]] = []
    for position in range(start, len(loops)):
        loop = loops[position]
        if loop.map_id is None:
            continue
        if found and loop.perfectly_nested and found[-1][-1] == position - 1:
            found[-1].append(position)
        else:
            found.append([position])
    return found
