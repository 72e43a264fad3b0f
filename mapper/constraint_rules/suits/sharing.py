"""Who runs what: groups around what is shared, work-items around what is their own."""

from __future__ import annotations

from collections.abc import Iterator

from mapper.ast_model.index_expr import const
from mapper.ast_model.loop_nest import Declare, Loop, LoopKernel, Store, loads, walk
from mapper.ast_model.nodes import Relation
from mapper.ast_model.spread import spread_dimension
from mapper.ast_model.types import Memory
from mapper.constraint_rules.owners import has_code
from mapper.constraint_rules.predicate import (
    LocalSizeVariable,
    Predicate,
    all_of,
    any_of,
    compare,
    negate,
    term_of,
)
from mapper.constraint_rules.rule import Provenance
from mapper.constraint_rules.runs import map_id, owner_in
from mapper.constraint_rules.suits.facts import (
    copies,
    map_ids,
    only_copies,
    own_scopes,
    owned,
    shared_depth,
    shared_out,
    shared_scopes,
)
from mapper.constraint_rules.suits.suit import BOTH, ON_CPU, ON_GPU, DeviceKind, Finding, Suit
from mapper.constraint_rules.suits.suit import kind_of as _kind_of
from mapper.device_profile import DeviceProfile
from mapper.schedule import (
    GLOBAL_CODES,
    LOCAL_CODES,
    PARALLEL_CODES,
    VECTOR_CODES,
    WORK_GROUP_CODES,
    ScheduleCode,
)

_GROUPS = frozenset(int(code) for code in WORK_GROUP_CODES)
_LOCALS = frozenset(int(code) for code in LOCAL_CODES)
_PARALLEL = frozenset(int(code) for code in PARALLEL_CODES)
_VECTORS = frozenset(int(code) for code in VECTOR_CODES)
_LINE = frozenset({int(ScheduleCode.GLOBAL_0)})
# Where these are in use nothing is left for another run of work-items.
_LAST_LEVELS = ((int(ScheduleCode.LOCAL_0),), tuple(sorted(int(c) for c in GLOBAL_CODES)))
GPU_GUIDE = "CUDA C++ Best Practices Guide"


def _groups_outside(kernel: LoopKernel, device: DeviceProfile) -> Iterator[Finding]:
    del device
    for buffer, around in shared_scopes(kernel):
        groups = shared_out(around, _GROUPS, [sorted(_GROUPS)])
        yield Finding(buffer.name, groups, map_ids(around), buffer.name)


def _items_inside(kernel: LoopKernel, device: DeviceProfile) -> Iterator[Finding]:
    del device
    for buffer, around in own_scopes(kernel):
        # What is outside of what the group shares is for groups to share out.
        start = shared_depth(kernel, around)
        items = shared_out(around, _PARALLEL, _LAST_LEVELS, start)
        yield Finding(buffer.name, items, map_ids(around), buffer.name)
    for buffer, around in shared_scopes(kernel):
        if not buffer.spread:
            continue
        for place, (loops, position) in enumerate(_spread_maps(kernel, buffer.name, len(around))):
            loop = loops[position]
            assert loop.map_id is not None
            yield Finding(
                f"{buffer.name}/{place}",
                owner_in(loops, position, _LOCALS),
                (loop.map_id,),
                buffer.name,
            )


def _spread_maps(
    kernel: LoopKernel, buffer: str, scope: int
) -> Iterator[tuple[tuple[Loop, ...], int]]:
    """The maps over the dimensions along which a buffer is spread, each once."""
    seen: set[int] = set()
    for statement, loops in walk(kernel.statements):
        if isinstance(statement, Declare):
            continue
        uses = [load for load in loads(statement.value) if load.buffer.name == buffer]
        accesses = [(load.buffer, load.indices) for load in uses]
        if statement.buffer.name == buffer:
            accesses.append((statement.buffer, statement.indices))
        for used, indices in accesses:
            for position in range(scope, len(loops)):
                inside = spread_dimension(used, indices, loops[position]) is not None
                if inside and id(loops[position]) not in seen:
                    seen.add(id(loops[position]))
                    yield loops, position


def _nothing_shared(kernel: LoopKernel, device: DeviceProfile) -> Iterator[Finding]:
    del device
    if any(True for _ in shared_scopes(kernel)):
        return
    for own in kernel.map_ids():
        yield Finding(str(own), negate(has_code(own, _GROUPS | _LOCALS)), (own,))


def _copies_in_line(kernel: LoopKernel, device: DeviceProfile) -> Iterator[Finding]:
    if not only_copies(kernel):
        return
    for statement, loops in walk(kernel.statements):
        if not isinstance(statement, Store) or not loops:
            continue
        ids = map_ids(loops)
        others = _PARALLEL - _LINE
        parts = [has_code(ids[0], _LINE)]
        parts += [negate(has_code(own, others)) for own in ids]
        if _kind_of(device) is DeviceKind.GPU:
            parts.append(owned(loops, _LINE))
        yield Finding(f"{kernel.name}/{ids[-1]}", all_of(*parts), ids, statement.buffer.name)


def _copies_shared_out(kernel: LoopKernel, device: DeviceProfile) -> Iterator[Finding]:
    del device
    scopes = {buffer.name: len(around) for buffer, around in shared_scopes(kernel)}
    for copy in copies(kernel):
        loops, start = copy.loops, scopes.get(copy.target.name)
        if copy.target.memory is not Memory.LOCAL or start is None or len(loops) == start:
            continue
        shared = _shared_by_many(kernel.name, loops, start)
        if len(loops) > start + 1 and loops[-1].map_id is not None:
            vectors = has_code(map_id(loops[-1]), _VECTORS)
            shared = any_of(
                shared, all_of(vectors, _shared_by_many(kernel.name, loops[:-1], start))
            )
        yield Finding(copy.target.name, shared, map_ids(loops), copy.target.name)


def _shared_by_many(kernel: str, loops: tuple[Loop, ...], start: int) -> Predicate:
    """All maps from ``start`` on go over the work-items; or all but the first, if they keep at
    least half of the work-items busy."""
    whole = shared_out(loops, _PARALLEL, _LAST_LEVELS, start)
    inside = loops[start + 1 :]
    if not inside:
        return whole
    together = const(1)
    for loop in inside:
        together *= loop.trip
    busy = compare(Relation.LE, LocalSizeVariable(kernel, 0), term_of(2 * together, {}))
    return any_of(whole, all_of(shared_out(loops, _PARALLEL, _LAST_LEVELS, start + 1), busy))


def _lone_items(kernel: LoopKernel, device: DeviceProfile) -> Iterator[Finding]:
    del device
    if any(buffer.memory is Memory.LOCAL for buffer, _ in shared_scopes(kernel)):
        return
    for own in kernel.map_ids():
        yield Finding(str(own), negate(has_code(own, _LOCALS)), (own,))


GROUPS_OUTSIDE = Suit(
    id="suits-groups-outside",
    title="Work-groups are outside of what a group shares",
    sentence="maps around what a group holds together are work-groups, as far as dimensions go: "
    "each that is sequential leaves processors idle",
    remedy="make the maps around the local memory, or the spread accumulators, work-group maps",
    source=Provenance(GPU_GUIDE, "Execution Configuration Optimizations"),
    kinds=ON_GPU,
    produce=_groups_outside,
)
ITEMS_INSIDE = Suit(
    id="suits-items-inside",
    title="A work-item makes one tile",
    sentence="maps around a work-item's private memory, and those that spread accumulators, are "
    "parallel, as far as dimensions go: a work-item makes one tile",
    remedy="give the maps around the private buffer to work-items",
    source=Provenance(GPU_GUIDE, "Execution Configuration Optimizations"),
    kinds=ON_GPU,
    produce=_items_inside,
)
NOTHING_SHARED = Suit(
    id="suits-global-items",
    title="Where nothing is shared, work-items are global",
    sentence="where a group shares nothing its work-items are global ones",
    remedy="use global codes instead of work-group and local ones",
    source=Provenance("nestmap, a preference", ""),
    kinds=ON_GPU,
    produce=_nothing_shared,
)
COPIES_IN_LINE = Suit(
    id="suits-copies-in-line",
    title="Copies run as one line",
    sentence="a kernel that only copies runs as one line of work-items; on a GPU one element each, "
    "on a processor also a row or a vector each",
    remedy="make the outermost map G0 and fuse the others into it",
    source=Provenance(GPU_GUIDE, "Coalesced Access to Global Memory"),
    kinds=BOTH,
    produce=_copies_in_line,
)
COPIES_SHARED_OUT = Suit(
    id="suits-copies-shared-out",
    title="All work-items of a group copy",
    sentence="all maps of a copy to local memory, but its vectors, go over the group's work-items; "
    "the outermost may be a loop where the others keep half of them busy",
    remedy="fuse the maps of the copy into one local map",
    source=Provenance(GPU_GUIDE, "Shared Memory in Matrix Multiplication"),
    kinds=ON_GPU,
    produce=_copies_shared_out,
)
LONE_ITEMS = Suit(
    id="suits-lone-items",
    title="On a processor nobody waits for a group",
    sentence="on a processor no map is local where there is no local memory: a group's work-items "
    "take turns on one core, and a barrier stores what each of them holds",
    remedy="make the map sequential, work-group or global",
    source=Provenance("pocl: A Performance-Portable OpenCL Implementation", "4"),
    kinds=ON_CPU,
    produce=_lone_items,
)
