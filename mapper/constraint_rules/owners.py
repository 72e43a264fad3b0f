"""Predicates that several rules share: who owns a map, and which codes are in use.

The *owner* of a fused map (code 1) is its nearest ancestor whose code is not 1; it runs the
fused iterations, so that strict rules speak of owners.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from mapper.ast_model.nodes import MapId
from mapper.constraint_rules.kernel_context import KernelContext
from mapper.constraint_rules.predicate import (
    CodeVariable,
    IntTerm,
    Predicate,
    all_of,
    any_of,
    member,
    multiply,
    negate,
    select,
    term_of,
)
from mapper.schedule import PARALLEL_CODES, ScheduleCode

PARALLEL_IN_ORDER = tuple(sorted(PARALLEL_CODES))


def has_code(map_id: MapId, codes: Iterable[int]) -> Predicate:
    """The map's own code is one of these."""
    return _member(map_id, codes if isinstance(codes, frozenset) else frozenset(codes))


# Rules ask for the same few hundred thousands of times; whoever walks a space meets each once.
@lru_cache(maxsize=16384)
def _member(map_id: MapId, codes: frozenset[int]) -> Predicate:
    return member(CodeVariable(map_id), codes)


def is_fused(map_id: MapId) -> Predicate:
    """The map is fused with the one around it."""
    return has_code(map_id, (ScheduleCode.FUSED,))


def owner_has_code(context: KernelContext, map_id: MapId, codes: frozenset[int]) -> Predicate:
    """The code of the map's owner is one of these (none of which is 1)."""
    result = has_code(map_id, codes)
    fused_so_far = is_fused(map_id)
    for owner in context.perfect_run_above(map_id):
        result = any_of(result, all_of(fused_so_far, has_code(owner, codes)))
        fused_so_far = all_of(fused_so_far, is_fused(owner))
    return result


def used_in(maps: Iterable[MapId], codes: Iterable[int]) -> Predicate:
    """Some of these maps has one of these codes."""
    wanted = frozenset(codes)
    return any_of(*(has_code(map_id, wanted) for map_id in maps))


# Every chain of a kernel asks: building it anew each time takes longer than all the rest.
@lru_cache(maxsize=64)
def used_in_kernel(context: KernelContext, code: int) -> Predicate:
    """Some map of the kernel has this code."""
    return used_in(context.map_ids, (code,))


def used_only_if_in(context: KernelContext, maps: tuple[MapId, ...], code: int) -> Predicate:
    """If the kernel uses the code at all, then these maps do."""
    # Every chain asks whether the kernel uses the code: one part that all share when lowered.
    return any_of(used_in(maps, (code,)), negate(used_in_kernel(context, code)))


def fused_trip_count(path: tuple[MapId, ...], context: KernelContext) -> IntTerm | None:
    """The trip count of the first map of ``path`` times those of maps fused with it below.

    ``path`` goes from outer to inner. None if a trip count in the run is not a number, for a
    bare nest tree does not say what its symbols are.
    """
    head, *rest = path
    trip = context.map(head).trip
    if trip.constant is None:
        return None
    own = term_of(trip, {})
    if not rest or not context.map(rest[0]).perfectly_nested:
        return own
    below = fused_trip_count(tuple(rest), context)
    return None if below is None else multiply(own, select(is_fused(rest[0]), below, 1))
