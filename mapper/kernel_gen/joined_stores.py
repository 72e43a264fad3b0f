"""Neighbours in global memory that one work-item writes one after the other, written together.

Where a work-item has a tile of the result, each of its stores alone fills a part of a memory
transaction; a vector fills all of it ("GPU" figures in docs/benchmarks.md: 14 to 16 % on an H200).
What a kernel keeps in wide vectors for a processor is written in vectors as wide: in pieces of four
each of them is taken apart first, which costs a layer with few channels 15 % (the same place,
"Kernels on a processor").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mapper.ast_model.index_expr import Expr, is_nonnegative, symbol
from mapper.ast_model.loop_nest import Guard, Load, Operate, Store, Value, loads
from mapper.ast_model.nodes import Op
from mapper.ast_model.types import Memory
from mapper.ast_model.views import LANE, mentions_lane
from mapper.elements import Element
from mapper.kernel_gen.c_expr import c_condition, never_holds
from mapper.kernel_gen.c_values import VECTOR_WIDTHS, stored_as_half, vectors_before
from mapper.kernel_gen.scheduled import Scheduled, flat_index

#: The widest vector that every device writes at once.
WIDEST_EVERYWHERE = 4


def joined(
    statements: Sequence[Scheduled], vectors: Mapping[str, int]
) -> tuple[int, Value | None, tuple[Guard, ...]]:
    """How many of these, from the first on, are stores to neighbours: the width of a vector, or 1
    for all else. With it the value whose lanes they store, where there is one, and what says
    whether they are written.

    No more than :data:`WIDEST_EVERYWHERE`, but for what is kept in ``vectors`` (private buffers
    with their width) and need not be taken apart.
    """
    row: list[Store] = []
    places: list[Expr] = []
    for statement in statements[: max([WIDEST_EVERYWHERE, *vectors.values()])]:
        if not isinstance(statement, Store) or not _is_plain(statement):
            break
        place = flat_index(statement.buffer, statement.indices)
        if row and (
            statement.buffer != row[0].buffer or (place - places[0]).constant != len(places)
        ):
            break
        row.append(statement)
        places.append(place)
    for width in reversed(VECTOR_WIDTHS):
        guards = _common_guards(row[:width]) if width <= len(row) else None
        if guards is None:
            continue
        whole = _lanes_of([unrounded(store) for store in row[:width]], vectors)
        if width <= WIDEST_EVERYWHERE or whole is not None:
            return width, whole, guards
    return 1, None, ()


def _common_guards(row: Sequence[Store]) -> tuple[Guard, ...] | None:
    """What says whether neighbours are written, all of them or none; None where some may be alone.

    A guard that moves on with the place says so where its limit is no place within a vector.
    """
    if len({len(store.guards) for store in row}) > 1:
        return None
    for several in zip(*(store.guards for store in row), strict=True):
        first = several[0]
        if all(guard == first for guard in several) or _hold(several):
            continue
        moves = (
            (guard.index - first.index).constant == place and guard.limit == first.limit
            for place, guard in enumerate(several)
        )
        if not (_in_whole_vectors(first, len(row)) and all(moves)):
            return None
    return row[-1].guards


def _hold(guards: Sequence[Guard]) -> bool:
    return all(c_condition(guard) is None for guard in guards)


def _in_whole_vectors(first: Guard, width: int) -> bool:
    ends = (vectors_before(first.index, width), vectors_before(first.limit, width))
    return is_nonnegative(first.index) and None not in ends


def unrounded(store: Store) -> Value:
    """What is stored; what the store itself rounds to 16 bits is not rounded before."""
    value = store.value
    if not stored_as_half(store.buffer) or not isinstance(value, Operate):
        return value
    if value.op is Op.TO_HALF:
        return Operate(Op.TO_FLOAT, value.operands)
    return replace(value, dtype=Element.FLOAT32)


def _lanes_of(values: Sequence[Value], vectors: Mapping[str, int]) -> Value | None:
    """One value whose lanes are these, for arithmetic on whole vectors.

    ``vectors`` are private buffers that are kept in vectors, with the width. None if the values
    are not alike, or have none of these vectors whole: then nothing is gained.
    """
    found = _over_lanes(values)
    if found is None:
        return None
    whole = [
        vectors.get(load.buffer.name) == len(values) and _is_whole(load)
        for load in loads(found)
        if load.buffer.memory is Memory.PRIVATE and mentions_lane(load)
    ]
    return found if whole and all(whole) else None


def _is_whole(load: Load) -> bool:
    *others, last = load.indices
    return str(last) == LANE and not any(LANE in index.names() for index in others)


def _over_lanes(values: Sequence[Value]) -> Value | None:
    first = values[0]
    if all(value == first for value in values):
        return first
    if isinstance(first, Load):
        alike = [v for v in values if isinstance(v, Load) and v.buffer == first.buffer]
        if len(alike) < len(values):
            return None
        indices = [_over_indices(of) for of in zip(*(v.indices for v in alike), strict=True)]
        found = tuple(index for index in indices if index is not None)
        return Load(first.buffer, found) if len(found) == len(indices) else None
    if isinstance(first, Operate):
        same = [v for v in values if isinstance(v, Operate) and v.op is first.op]
        if len(same) < len(values) or len({len(v.operands) for v in same}) > 1:
            return None
        operands = [_over_lanes(of) for of in zip(*(v.operands for v in same), strict=True)]
        known = tuple(operand for operand in operands if operand is not None)
        return replace(first, operands=known) if len(known) == len(operands) else None
    return None


def _over_indices(indices: Sequence[Expr]) -> Expr | None:
    """These as steps of the lane; None if they are not evenly spaced."""
    first, second = indices[0], indices[1]
    step = (second - first).constant
    if step is None or any((i - first).constant != k * step for k, i in enumerate(indices)):
        return None
    return first + symbol(LANE, len(indices)) * step


def _is_plain(store: Store) -> bool:
    """A scalar that is written to global memory, and does not depend on what is."""
    return (
        store.buffer.memory is Memory.GLOBAL
        and store.lane is None
        and not any(never_holds(guard) for guard in store.guards)
        and not any(load.buffer.name == store.buffer.name for load in loads(store.value))
    )
