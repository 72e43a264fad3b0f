"""Rules cross-group-dependence and synchronisability, from index functions.

Both start from the conflicts of a kernel: pairs of accesses to one local or global buffer,
at least one a write. In a parallel dimension the pair is *aligned* if one thread makes both
for every element: the runs that own the dimension are the same digits of the index.

"Mapping Parallelism in a Functional IR through Constraint Satisfaction" (CC'22) states in
section 2.1 that OpenCL cannot synchronise across work-groups, and in section 4.6 that a
barrier must be met by all threads, but has rules for neither and loses 33 % of its
candidates after the solver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mapper.ast_model.dependence import (
    Access,
    Conflict,
    Signature,
    conflicts,
    map_ids,
    run_signature,
    runs_from,
)
from mapper.ast_model.loop_nest import Loop, LoopKernel
from mapper.ast_model.nodes import MapId
from mapper.constraint_rules.owners import used_in
from mapper.constraint_rules.predicate import (
    LocalSizeVariable,
    Predicate,
    all_of,
    any_of,
    divides,
    implies,
    negate,
)
from mapper.constraint_rules.rule import NESTMAP, PARALLEL_MAPPING, Constraint, Provenance
from mapper.constraint_rules.runs import owns, run_trip
from mapper.schedule import (
    DIMENSIONS,
    GLOBAL_CODES,
    LOCAL_CODES,
    WORK_GROUP_CODES,
    Level,
    parallel_code,
)

CROSS_GROUP = "cross-group-dependence"
SYNCHRONISABILITY = "synchronisability"


def cross_group(kernel: LoopKernel) -> Iterator[Constraint]:
    """One instance for each conflict: aligned in every work-group and global dimension."""
    for position, conflict in enumerate(conflicts(kernel)):
        crossing = misaligned(conflict, sorted(WORK_GROUP_CODES | GLOBAL_CODES))
        predicate = all_of(*(negate(part) for part in crossing))
        yield Constraint(
            id=f"{CROSS_GROUP}/{kernel.name}/{position}",
            rule=CROSS_GROUP,
            subjects=_subjects(conflict, conflict.scope),
            predicate=predicate,
            provenance=Provenance(NESTMAP, "2.1"),
            buffer=conflict.buffer.name,
            sentence=(
                f"an element of {conflict.buffer.name} would be "
                f"{_verb(conflict.first)} by one work-group or global thread "
                f"{_where(conflict.first)} and {_verb(conflict.second)} by another "
                f"{_where(conflict.second)}, and OpenCL has no barrier between them"
            ),
            remedy=(
                "give the dimension to maps that index the buffer alike on both sides, or to a "
                "map around both; or cut the program into two kernels there"
            ),
        )


def synchronisability(kernel: LoopKernel) -> Iterator[Constraint]:
    """One instance for each conflict: a barrier it needs stands where all threads come by."""
    for position, conflict in enumerate(conflicts(kernel)):
        needed = any_of(*misaligned(conflict, sorted(LOCAL_CODES)))
        around = conflict.first.loops[: conflict.common]
        uniform = all_of(*_uniform(kernel.name, around))
        predicate = implies(needed, uniform)
        yield Constraint(
            id=f"{SYNCHRONISABILITY}/{kernel.name}/{position}",
            rule=SYNCHRONISABILITY,
            subjects=_subjects(conflict, 0),
            predicate=predicate,
            provenance=Provenance(PARALLEL_MAPPING, "4.6"),
            buffer=conflict.buffer.name,
            sentence=(
                f"{conflict.buffer.name} is {_verb(conflict.first)} "
                f"{_where(conflict.first)} and {_verb(conflict.second)} "
                f"{_where(conflict.second)} by other work-items, and the barrier between them "
                "stands in a local loop that not all work-items of the group run equally often"
            ),
            remedy=(
                "choose a local size that divides the trip counts of the local maps around the "
                "barrier, or let the same work-items make both accesses"
            ),
        )


def _uniform(kernel: str, around: tuple[Loop, ...]) -> Iterator[Predicate]:
    """Each local run around a barrier has a trip count that its local size divides."""
    for position, run in runs_from(around, 0):
        for dimension in DIMENSIONS:
            size = LocalSizeVariable(kernel, dimension)
            code = parallel_code(Level.LOCAL, dimension)
            yield implies(owns(around, position, run, code), divides(size, run_trip(run)))


def misaligned(conflict: Conflict, codes: Iterable[int]) -> list[Predicate]:
    """For each code: different threads of its level and dimension may make the two accesses."""
    first, second = conflict.first.loops, conflict.second.loops
    ids = map_ids(first[conflict.scope :]) + map_ids(second[conflict.scope :])
    # Which runs are the same digits does not depend on the code.
    left = _by_signature(conflict.first, conflict.scope)
    right = _by_signature(conflict.second, conflict.scope)
    pairs = [
        (of_first, of_second)
        for signature, runs in left.items()
        for of_first in runs
        for of_second in right.get(signature, ())
    ]

    def aligned(code: int) -> Predicate:
        return any_of(*(all_of(owns(first, *a, code), owns(second, *b, code)) for a, b in pairs))

    return [all_of(used_in(ids, (code,)), negate(aligned(code))) for code in codes]


def _by_signature(
    access: Access, scope: int
) -> dict[Signature, list[tuple[int, tuple[Loop, ...]]]]:
    found: dict[Signature, list[tuple[int, tuple[Loop, ...]]]] = {}
    for position, run in runs_from(access.loops, scope):
        signature = run_signature(access, run)
        if signature is not None:
            found.setdefault(signature, []).append((position, run))
    return found


def _subjects(conflict: Conflict, start: int) -> tuple[MapId, ...]:
    both = map_ids(conflict.first.loops[start:]) + map_ids(conflict.second.loops[start:])
    return tuple(dict.fromkeys(both))


def _verb(access: Access) -> str:
    return "written" if access.is_write else "read"


def _where(access: Access) -> str:
    ids = map_ids(access.loops)
    return f"under map {ids[-1]}" if ids else "outside all maps"
