"""How memory is met: vectors of whole maps, lanes along what is contiguous, sums in registers."""

from __future__ import annotations

from collections.abc import Iterator

from mapper.ast_model.loop_nest import Loop, LoopKernel, Statement, Store, walk
from mapper.ast_model.nodes import Relation
from mapper.ast_model.types import Memory
from mapper.constraint_rules.owners import has_code
from mapper.constraint_rules.predicate import (
    IntTerm,
    LocalSizeVariable,
    all_of,
    any_of,
    compare,
    divides,
    implies,
    multiply,
    negate,
    select,
    term_of,
)
from mapper.constraint_rules.rule import PARALLEL_MAPPING, Provenance
from mapper.constraint_rules.runs import map_id, owner_in
from mapper.constraint_rules.suits.facts import copies, map_ids, shared_scopes
from mapper.constraint_rules.suits.suit import (
    BOTH,
    ON_CPU,
    ON_GPU,
    Finding,
    Suit,
    registers_of,
)
from mapper.constraint_rules.vectorisation import why_not
from mapper.device_profile import DeviceProfile
from mapper.schedule import PARALLEL_CODES, VECTOR_CODES

_PARALLEL = frozenset(int(code) for code in PARALLEL_CODES)
_VECTORS = frozenset(int(code) for code in VECTOR_CODES)
#: Work-items that a multiprocessor issues together.
_WARP = 32


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
    if device.max_work_group_size < _WARP or not any(True for _ in shared_scopes(kernel)):
        return
    line = LocalSizeVariable(kernel.name, 0)
    yield Finding(kernel.name, divides(_WARP, line))


def _in_registers(kernel: LoopKernel, device: DeviceProfile) -> Iterator[Finding]:
    seen: set[int] = set()
    for statement, loops in walk(kernel.statements):
        inner = _below_reduce(loops)
        if (
            not isinstance(statement, Store)
            or statement.buffer.memory is not Memory.PRIVATE
            or not inner
            or id(inner[-1]) in seen
        ):
            continue
        seen.add(id(inner[-1]))
        last = inner[-1]
        trips: list[IntTerm] = [term_of(loop.trip, {}) for loop in inner[:-1]]
        vector = has_code(map_id(last), _VECTORS)
        trips.append(select(vector, 1, term_of(last.trip, {})))
        fits = compare(Relation.LE, multiply(*trips), registers_of(device))
        yield Finding(f"{kernel.name}/{map_id(last)}", fits, map_ids(inner), statement.buffer.name)


def _below_reduce(loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """The maps under an innermost reduce; none where there is no reduce, or another one in it."""
    for position in range(len(loops) - 1, -1, -1):
        if loops[position].map_id is None:
            return () if _reduces(loops[position].body) else loops[position + 1 :]
    return ()


def _reduces(statements: tuple[Statement, ...]) -> bool:
    return any(isinstance(s, Loop) and (s.map_id is None or _reduces(s.body)) for s in statements)


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
    sentence=f"groups fill whole warps of {_WARP} work-items: lanes without a work-item are idle",
    remedy=f"choose tiles whose work-items are a multiple of {_WARP}",
    source=Provenance("CUDA C++ Programming Guide", "SIMT Architecture"),
    kinds=ON_GPU,
    produce=_whole_warps,
)
SUMS_IN_REGISTERS = Suit(
    id="suits-sums-in-registers",
    title="Sums fit into registers",
    sentence="what a work-item adds up under its innermost reduce fits into the vector registers, "
    "one each",
    remedy="let a work-item keep fewer filters, rows or columns",
    source=Provenance("Anatomy of High-Performance Matrix Multiplication", "6.1"),
    kinds=ON_CPU,
    produce=_in_registers,
)
