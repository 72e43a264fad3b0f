"""How memory is met: vectors of whole maps, lanes along what is contiguous, sums in registers."""

from __future__ import annotations

from collections.abc import Iterator

from mapper.ast_model.loop_nest import Loop, LoopKernel, Statement
from mapper.ast_model.nodes import Relation
from mapper.ast_model.types import Memory
from mapper.constraint_rules.owners import has_code
from mapper.constraint_rules.predicate import (
    FALSE,
    LocalSizeVariable,
    all_of,
    any_of,
    compare,
    divides,
    implies,
    negate,
    term_of,
)
from mapper.constraint_rules.rule import PARALLEL_MAPPING, Provenance
from mapper.constraint_rules.runs import map_id, owner_in
from mapper.constraint_rules.suits.facts import Copy, copies, map_ids, shared_scopes
from mapper.constraint_rules.suits.suit import (
    BOTH,
    ON_GPU,
    Finding,
    Suit,
)
from mapper.constraint_rules.vectorisation import why_not
from mapper.device_profile import DeviceProfile
from mapper.schedule import PARALLEL_CODES, VECTOR_CODES

_PARALLEL = frozenset(int(code) for code in PARALLEL_CODES)
_VECTORS = frozenset(int(code) for code in VECTOR_CODES)


def _innermost(statements: tuple[Statement, ...]) -> Iterator[Loop]:
    for statement in statements:
        if isinstance(statement, Loop):
            below = list(_innermost(statement.body))
            if statement.map_id is not None and not below:
                yield statement
            yield from below


def _whole_vectors(kernel: LoopKernel, device: DeviceProfile) -> Iterator[Finding]:
    for loop in _innermost(kernel.statements):
        own = map_id(loop)
        if why_not(loop) is not None:
            continue
        free = loop.writes is Memory.GLOBAL
        trip = term_of(loop.trip, {})
        parts = [negate(has_code(own, _VECTORS - set(device.vector_widths)))]
        for width in device.vector_widths:
            if width == 1:
                continue
            whole = compare(Relation.EQ, trip, width)
            vector = has_code(own, (width,))
            parts.append(implies(vector, whole))
            # Stores to global memory are joined by the generator where they are neighbours.
            if not free:
                parts.append(implies(whole, vector))
        yield Finding(str(own), all_of(*parts), (own,))


def _lanes_along(kernel: LoopKernel, device: DeviceProfile) -> Iterator[Finding]:
    del device
    for copy in copies(kernel):
        loops = copy.loops
        if copy.target.memory is not Memory.LOCAL or not loops or loops[-1].map_id is None:
            continue
        last = len(loops) - 1
        direct = owner_in(loops, last, _PARALLEL)
        if last and loops[last - 1].map_id is not None:
            vector = has_code(map_id(loops[last]), _VECTORS)
            direct = any_of(direct, all_of(vector, owner_in(loops, last - 1, _PARALLEL)))
        yield Finding(copy.target.name, direct, map_ids(loops), copy.target.name)


def _whole_warps(kernel: LoopKernel, device: DeviceProfile) -> Iterator[Finding]:
    lanes = device.lanes
    if lanes is None or device.max_work_group_size < lanes:
        return
    if any(True for _ in shared_scopes(kernel)):
        yield Finding(kernel.name, divides(lanes, LocalSizeVariable(kernel.name, 0)))


def _nothing_staged(kernel: LoopKernel, device: DeviceProfile) -> Iterator[Finding]:
    if device.local_memory != "ordinary":
        return
    staged: dict[str, Copy] = {}
    for copy in copies(kernel):
        if copy.target.memory is Memory.LOCAL:
            staged.setdefault(copy.target.name, copy)
    for name, copy in staged.items():
        yield Finding(name, FALSE, map_ids(copy.loops), name)


WHOLE_VECTORS = Suit(
    id="suits-whole-vectors",
    title="A vector is a whole map",
    sentence="a vector is a whole map of as many iterations as a vector of the device has lanes; "
    "an innermost map over neighbours in local or private memory that is so long is one",
    remedy="choose the vector width that is the map's trip count",
    source=Provenance(PARALLEL_MAPPING, "3.3"),
    kinds=BOTH,
    produce=_whole_vectors,
)
LANES_ALONG = Suit(
    id="suits-lanes-along",
    title="Lanes run along what is contiguous",
    sentence="lanes run along what is contiguous: the innermost map of a copy to local memory, or "
    "the one around its vectors, goes over the work-items",
    remedy="fuse the innermost map of the copy into a local one",
    source=Provenance("CUDA C++ Best Practices Guide", "Coalesced Access to Global Memory"),
    kinds=ON_GPU,
    produce=_lanes_along,
)
WHOLE_WARPS = Suit(
    id="suits-whole-warps",
    title="Groups fill whole warps",
    sentence="groups fill whole warps of as many work-items as the device issues together: lanes "
    "without a work-item are idle",
    remedy="choose tiles whose work-items are a multiple of a warp",
    source=Provenance("CUDA C++ Programming Guide", "SIMT Architecture"),
    kinds=ON_GPU,
    produce=_whole_warps,
)
NOTHING_STAGED = Suit(
    id="suits-nothing-staged",
    title="Nothing is copied to where it is already",
    sentence="where local memory is ordinary memory nothing is staged in it: caches hold what is "
    "read again, and a copy and its barriers come on top",
    remedy="compute it another way, without local memory: another variant, sketch or program",
    source=Provenance(
        "Arm Mali Bifrost and Valhall OpenCL Developer Guide",
        "7.3.2, Locate and remove device optimizations",
    ),
    kinds=ON_GPU,
    produce=_nothing_staged,
)
