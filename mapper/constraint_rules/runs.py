"""Predicates about runs: an owner map with the maps fused into it.

Rules that speak of trip counts and index functions have to know which maps run as one; for
each possible run there is a predicate that says it is this one.
"""

from __future__ import annotations

from mapper.ast_model.loop_nest import Loop
from mapper.ast_model.nodes import MapId
from mapper.constraint_rules.owners import has_code, is_fused
from mapper.constraint_rules.predicate import (
    IntTerm,
    Predicate,
    all_of,
    any_of,
    multiply,
    negate,
    term_of,
)


def map_id(loop: Loop) -> MapId:
    """The id of a loop that is a map."""
    assert loop.map_id is not None
    return loop.map_id


def owns(loops: tuple[Loop, ...], position: int, run: tuple[Loop, ...], code: int) -> Predicate:
    """The map at ``position`` has this code and exactly the rest of ``run`` is fused with it."""
    head, *rest = run
    parts = [has_code(map_id(head), (code,)), *(is_fused(map_id(loop)) for loop in rest)]
    end = position + len(run)
    if end < len(loops) and loops[end].map_id is not None and loops[end].perfectly_nested:
        parts.append(negate(is_fused(map_id(loops[end]))))
    return all_of(*parts)


def run_trip(run: tuple[Loop, ...]) -> IntTerm:
    """The product of the trip counts."""
    return multiply(*(term_of(loop.trip, {}) for loop in run))


def owner_in(loops: tuple[Loop, ...], position: int, codes: frozenset[int]) -> Predicate:
    """The map at ``position`` is owned by one with such a code."""
    loop = loops[position]
    own = has_code(map_id(loop), codes)
    if not loop.perfectly_nested or position == 0 or loops[position - 1].map_id is None:
        return own
    return any_of(own, all_of(is_fused(map_id(loop)), owner_in(loops, position - 1, codes)))
