"""Which OpenCL dimensions are worth telling apart: few, and in one order.

Permuted dimensions and shapes of a group are other mappings of the same kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

from mapper.ast_model.loop_nest import LoopKernel, Store, walk
from mapper.ast_model.nodes import MapId
from mapper.constraint_rules.owners import has_code, used_in
from mapper.constraint_rules.predicate import (
    LocalSizeVariable,
    Predicate,
    all_of,
    implies,
    member,
    negate,
)
from mapper.constraint_rules.rule import Provenance
from mapper.constraint_rules.suits.facts import map_ids
from mapper.constraint_rules.suits.suit import BOTH, Finding, Suit
from mapper.device_profile import DeviceProfile
from mapper.schedule import Level, ScheduleCode, parallel_code

_OTHER_LOCALS = (ScheduleCode.LOCAL_1, ScheduleCode.LOCAL_2)


def _one_line(kernel: LoopKernel, device: DeviceProfile) -> Iterator[Finding]:
    del device
    for map_id in kernel.map_ids():
        yield Finding(str(map_id), negate(has_code(map_id, _OTHER_LOCALS)), (map_id,))
    for dimension in (1, 2):
        size = LocalSizeVariable(kernel.name, dimension)
        yield Finding(f"{kernel.name}/{dimension}", member(size, (1,)))


def _in_order(kernel: LoopKernel, device: DeviceProfile) -> Iterator[Finding]:
    del device
    seen: set[MapId] = set()
    for statement, loops in walk(kernel.statements):
        ids = map_ids(loops) if isinstance(statement, Store) else ()
        for place, inner in enumerate(ids):
            if place and inner not in seen:
                seen.add(inner)
                outer = ids[:place]
                yield Finding(str(inner), all_of(*_falling(outer, inner)), (*outer, inner))
    ids = kernel.map_ids()
    gaps = [
        implies(
            used_in(ids, (parallel_code(level, dimension),)),
            used_in(ids, (parallel_code(level, dimension - 1),)),
        )
        for level in (Level.WORK_GROUP, Level.GLOBAL)
        for dimension in (1, 2)
    ]
    # A map may be called as a kernel is.
    yield Finding(f"{kernel.name}/levels", all_of(*gaps), ids)


def _falling(outer: tuple[MapId, ...], inner: MapId) -> Iterator[Predicate]:
    """No map around has a lower dimension of the same level."""
    for level in (Level.WORK_GROUP, Level.GLOBAL):
        codes = [parallel_code(level, dimension) for dimension in range(3)]
        for dimension, code in enumerate(codes[:-1]):
            higher = has_code(inner, tuple(codes[dimension + 1 :]))
            yield negate(all_of(higher, used_in(outer, (code,))))


ONE_LINE = Suit(
    id="suits-one-line",
    title="A group is one line of work-items",
    sentence="the work-items of a group stand in one line: the digits of fused maps say who does "
    "what, and a shape of two or three dimensions adds none",
    remedy="fuse local maps into one of dimension 0, with local size 1 in the others",
    source=Provenance("nestmap, a preference", "docs/decisions/0006"),
    kinds=BOTH,
    produce=_one_line,
)
DIMENSIONS_IN_ORDER = Suit(
    id="suits-dimensions-in-order",
    title="Dimensions go inwards from 2 to 0",
    sentence="work-group and global dimensions go from 2 outside to 0 inside and leave none out: "
    "others are the same launch with its dimensions permuted",
    remedy="number the dimensions from the innermost parallel map outwards",
    source=Provenance("nestmap, a preference", "docs/decisions/0006"),
    kinds=BOTH,
    produce=_in_order,
)
