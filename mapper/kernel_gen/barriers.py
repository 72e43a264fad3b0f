"""Where work-group barriers go, and why.

For two conflicting accesses made by different threads of a work-group, a barrier stands
between them in the statement list of their innermost common loop; if an enclosing loop
repeats them on the same memory, another one keeps the next round's first access behind
this round's second ("Mapping Parallelism in a Functional IR through Constraint
Satisfaction" (CC'22), section 4.6). The solver has made sure that each stands where all
work-items of the group come by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mapper.ast_model.dependence import Access, Conflict, conflicts, run_signature
from mapper.ast_model.loop_nest import Buffer, Loop, LoopKernel
from mapper.ast_model.nodes import MapId
from mapper.ast_model.types import Memory
from mapper.errors import InputError, Problem
from mapper.kernel_gen.double_buffers import is_kept_apart
from mapper.schedule import Level, ScheduleCode


@dataclass(frozen=True, slots=True)
class Reason:
    """Two accesses of a buffer by different work-items that a barrier keeps apart.

    With ``repeats`` the second is that of the iteration before, below the first.
    """

    buffer: Buffer
    first: str
    second: str
    repeats: bool

    def text(self, name: str) -> str:
        """In words, the buffer called by this name."""
        if self.repeats:
            return f"the iteration before still uses {name}, {self.first} below"
        return f"{name} is {self.first} above and {self.second} below by other work-items"


@dataclass(frozen=True, slots=True)
class Barrier:
    """A work-group barrier with the memories it fences and its reasons."""

    memories: frozenset[Memory]
    reasons: tuple[Reason, ...]


BarrierPlan = Mapping[tuple[tuple[int, ...], int], Barrier]
"""(path of the statement list, position of the statement behind the barrier)."""


@dataclass(frozen=True, slots=True)
class _Need:
    """A barrier is wanted behind statement ``after`` and at or before ``before``."""

    after: int
    before: int
    conflict: Conflict
    repeats: bool


def plan_barriers(
    kernel: LoopKernel,
    codes: Mapping[MapId, ScheduleCode],
    local_size: tuple[int, int, int],
    *,
    refuse: bool = True,
) -> BarrierPlan:
    """Barriers of a kernel under a mapping.

    Raises InputError if an access conflicts across work-groups, which no barrier mends, or
    if a barrier would not be met by all work-items; the rules cross-group-dependence and
    synchronisability keep such mappings out. Without ``refuse`` there is a barrier for these
    too, so that a simulator may judge what the rules keep out.
    """
    needs: dict[tuple[int, ...], list[_Need]] = {}
    for conflict in conflicts(kernel):
        levels = misaligned_levels(conflict, codes)
        crossing = levels - {Level.LOCAL}
        if crossing and refuse:
            raise InputError(
                Problem(
                    f"kernel {kernel.name}",
                    f"buffer {conflict.buffer.name} is written by one work-group or global "
                    "thread and used by another, and OpenCL has no barrier between them",
                    remedy="cut the program into two kernels there",
                )
            )
        if levels:
            if refuse:
                _require_uniform(kernel.name, conflict, codes, local_size)
            path = conflict.first.path[: conflict.common]
            needs.setdefault(path, []).append(
                _Need(
                    conflict.first.path[conflict.common],
                    conflict.second.path[conflict.common],
                    conflict,
                    _repeats(conflict, codes),
                )
            )
    plan: dict[tuple[tuple[int, ...], int], Barrier] = {}
    for path, wanted in needs.items():
        gaps: dict[int, tuple[set[Memory], list[Reason]]] = {}
        for need in sorted(wanted, key=lambda n: n.before):
            gap = max((g for g in gaps if need.after < g <= need.before), default=need.before)
            memories, reasons = gaps.setdefault(gap, (set(), []))
            memories.add(need.conflict.buffer.memory)
            reasons.append(_reason(need.conflict, repeats=False))
        for need in sorted(wanted, key=lambda n: n.after):
            if not need.repeats:
                continue
            gap = max((g for g in gaps if g <= need.after or g > need.before), default=need.after)
            memories, reasons = gaps.setdefault(gap, (set(), []))
            memories.add(need.conflict.buffer.memory)
            reasons.append(_reason(need.conflict, repeats=True))
        for gap, (memories, reasons) in gaps.items():
            unique = tuple(dict.fromkeys(reasons))
            plan[path, gap] = Barrier(frozenset(memories), unique)
    return plan


def _require_uniform(
    kernel: str,
    conflict: Conflict,
    codes: Mapping[MapId, ScheduleCode],
    local_size: tuple[int, int, int],
) -> None:
    """Every local run around the barrier has a trip count that its local size divides."""
    around = replace(conflict.first, loops=conflict.first.loops[: conflict.common])
    for code, run in _owners(around, 0, codes).items():
        if code.level is not Level.LOCAL or code.dimension is None:
            continue
        trip = 1
        for loop in run:
            trip *= loop.trip.constant or 1
        if trip % local_size[code.dimension]:
            raise InputError(
                Problem(
                    f"kernel {kernel}",
                    f"a barrier for {conflict.buffer.name} would stand in a local loop that not "
                    "all work-items run equally often",
                    f"{trip} iterations for {local_size[code.dimension]} work-items",
                )
            )


def _reason(conflict: Conflict, *, repeats: bool) -> Reason:
    first, second = _verb(conflict.first), _verb(conflict.second)
    return Reason(conflict.buffer, first, second, repeats)


def _verb(access: Access) -> str:
    return "written" if access.is_write else "read"


def misaligned_levels(conflict: Conflict, codes: Mapping[MapId, ScheduleCode]) -> frozenset[Level]:
    """The parallel levels in which different threads may make the two accesses."""
    first = _owners(conflict.first, conflict.scope, codes)
    second = _owners(conflict.second, conflict.scope, codes)
    return frozenset(
        code.level
        for code in first.keys() | second.keys()
        if code not in first
        or code not in second
        or (a := run_signature(conflict.first, first[code])) is None
        or a != run_signature(conflict.second, second[code])
    )


def _owners(
    access: Access, scope: int, codes: Mapping[MapId, ScheduleCode]
) -> dict[ScheduleCode, tuple[Loop, ...]]:
    """Parallel owners among the loops under the buffer's scope, with their fused runs."""
    owners: dict[ScheduleCode, tuple[Loop, ...]] = {}
    current: ScheduleCode | None = None
    for loop in access.loops[scope:]:
        if loop.map_id is None:
            current = None
            continue
        code = codes[loop.map_id]
        if code is ScheduleCode.FUSED:
            if current is not None:
                owners[current] = (*owners[current], loop)
            continue
        current = code if code.is_parallel else None
        if current is not None:
            owners[current] = (loop,)
    return owners


def _repeats(conflict: Conflict, codes: Mapping[MapId, ScheduleCode]) -> bool:
    """Whether iterations of a serial loop around both accesses use the same memory."""
    code: ScheduleCode | None = None
    around = conflict.first.loops[: conflict.scope]
    is_local = conflict.buffer.memory is Memory.LOCAL
    for position, loop in enumerate(conflict.first.loops[: conflict.common]):
        if loop.map_id is None:
            code = None
        elif codes[loop.map_id] is not ScheduleCode.FUSED:
            code = codes[loop.map_id]
        if (code is None or not code.is_parallel) and loop.trip != 1:
            if is_local and is_kept_apart(around, position):
                continue
            return True
    return False
