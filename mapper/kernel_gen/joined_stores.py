"""Neighbours in global memory that one work-item writes one after the other, written together.

Where a work-item has a tile of the result, each of its stores alone fills a part of a memory
transaction; a vector fills all of it ("GPU" figures in docs/benchmarks.md: 14 to 16 % on an H200).
"""

from __future__ import annotations

from mapper.ast_model.index_expr import Expr
from mapper.ast_model.loop_nest import Buffer, Store, loads
from mapper.ast_model.types import Memory
from mapper.kernel_gen.c_expr import c_condition, never_holds
from mapper.kernel_gen.scheduled import Scheduled, flat_index

#: The widest vector that every device writes at once.
WIDEST = 4


def joined(statements: tuple[Scheduled, ...]) -> int:
    """How many of these, from the first on, are stores to neighbours: 4, 2, or 1 for all else.

    No more than :data:`WIDEST` are looked at.
    """
    places: list[tuple[Buffer, Expr]] = []
    for statement in statements[:WIDEST]:
        if not isinstance(statement, Store) or not _is_plain(statement):
            break
        place = flat_index(statement.buffer, statement.indices)
        if places:
            buffer, first = places[0]
            if statement.buffer != buffer or (place - first).constant != len(places):
                break
        places.append((statement.buffer, place))
    return 4 if len(places) >= 4 else 2 if len(places) >= 2 else 1


def _is_plain(store: Store) -> bool:
    """A scalar that is written to global memory in any case, and does not depend on what is."""
    return (
        store.buffer.memory is Memory.GLOBAL
        and store.lane is None
        and not any(never_holds(g) or c_condition(g) is not None for g in store.guards)
        and not any(load.buffer.name == store.buffer.name for load in loads(store.value))
    )
