"""Rules private- and shared-memory-scoping again, buffer by buffer.

The rules of "Mapping Parallelism in a Functional IR through Constraint Satisfaction" (CC'22),
section 4.3, speak of maps that use a memory. Where the buffers of a kernel are known it is
said of each: which maps stand around it, and which between it and its uses. So scalars, which
no map uses, are covered too.
"""

from __future__ import annotations

from collections.abc import Iterator

from mapper.ast_model.dependence import runs_from
from mapper.ast_model.index_expr import Expr
from mapper.ast_model.loop_nest import Buffer, Declare, Loop, LoopKernel, Store, loads, walk
from mapper.ast_model.nodes import MapId, Relation
from mapper.ast_model.spread import spread_dimension, spread_run
from mapper.ast_model.types import Memory
from mapper.constraint_rules.owners import used_in
from mapper.constraint_rules.predicate import (
    LocalSizeVariable,
    Predicate,
    all_of,
    any_of,
    compare,
    implies,
    negate,
)
from mapper.constraint_rules.rule import PARALLEL_MAPPING, Constraint, Provenance, RuleOptions
from mapper.constraint_rules.runs import map_id, owner_in, owns, run_trip
from mapper.constraint_rules.shared_memory_scoping import in_a_work_group
from mapper.schedule import (
    DIMENSIONS,
    GLOBAL_CODES,
    PARALLEL_CODES,
    WORK_GROUP_CODES,
    Level,
    parallel_code,
)

PRIVATE = "private-memory-scoping"
SHARED = "shared-memory-scoping"


def produce(kernel: LoopKernel, options: RuleOptions) -> Iterator[Constraint]:
    """One instance for each private or local buffer."""
    for statement, around in walk(kernel.statements):
        if not isinstance(statement, Declare):
            continue
        if statement.buffer.memory is Memory.PRIVATE:
            yield _private(kernel, statement.buffer, len(around), options)
        elif statement.buffer.memory is Memory.LOCAL:
            yield _local(kernel, statement.buffer, around, options)


def _private(kernel: LoopKernel, buffer: Buffer, scope: int, options: RuleOptions) -> Constraint:
    if buffer.spread:
        return _spread(kernel, buffer, scope)
    # With copies in every thread, a parallel map may read what each thread has written whole.
    reads = not options.replicate_private
    between = tuple(_between(kernel, buffer, scope, reads=reads))
    return Constraint(
        id=f"{PRIVATE}/{buffer.name}",
        rule=PRIVATE,
        subjects=_subjects(between, scope),
        predicate=_nobody_owns(between, scope, frozenset(int(c) for c in PARALLEL_CODES)),
        provenance=Provenance(PARALLEL_MAPPING, "4.3", "(1)"),
        buffer=buffer.name,
        sentence=(
            f"{buffer.name} is in private memory, which one thread alone can see, so no map "
            "between it and its uses can be spread over threads"
        ),
        remedy="make these maps sequential, or put the buffer in local memory",
    )


def _spread(kernel: LoopKernel, buffer: Buffer, scope: int) -> Constraint:
    """A private buffer whose leading dimensions may be spread over work-items.

    A map between it and a use may be local, with one iteration a work-item, if it alone
    indexes such a dimension, and if every other use is spread the same way.
    """
    uses = tuple(_uses(kernel, buffer))
    parts: list[Predicate] = []
    for loops, indices in uses:
        for position in range(scope, len(loops)):
            if loops[position].map_id is None:
                continue
            inside = spread_dimension(buffer, indices, loops[position]) is not None
            codes = (WORK_GROUP_CODES | GLOBAL_CODES) if inside else PARALLEL_CODES
            parts.append(negate(owner_in(loops, position, frozenset(int(c) for c in codes))))
    for dimension in DIMENSIONS:
        code = parallel_code(Level.LOCAL, dimension)
        size = LocalSizeVariable(kernel.name, dimension)
        owned: list[dict[tuple[int, ...], Predicate]] = []
        for loops, indices in uses:
            by_dimensions: dict[tuple[int, ...], Predicate] = {}
            for position, run in runs_from(loops, scope):
                spread = spread_run(buffer, indices, run)
                if spread is not None:
                    here = owns(loops, position, run, code)
                    parts.append(implies(here, compare(Relation.EQ, size, run_trip(run))))
                    by_dimensions[spread] = any_of(by_dimensions.get(spread, any_of()), here)
            owned.append(by_dimensions)
        first, *others = owned
        for other in others:
            for spread in first.keys() | other.keys():
                a, b = first.get(spread, any_of()), other.get(spread, any_of())
                parts += [implies(a, b), implies(b, a)]
    ids = (map_id(loop) for loops, _ in uses for loop in loops[scope:] if loop.map_id is not None)
    return Constraint(
        id=f"{PRIVATE}/{buffer.name}",
        rule=PRIVATE,
        subjects=tuple(dict.fromkeys(ids)),
        predicate=all_of(*parts),
        provenance=Provenance(PARALLEL_MAPPING, "4.3", "(1)"),
        buffer=buffer.name,
        sentence=(
            f"{buffer.name} is in private memory and may be spread over the work-items of a "
            f"group along its first {buffer.spread} dimensions: all maps between it and its uses "
            "must then index them alike, with as many iterations as work-items"
        ),
        remedy=(
            "give the maps over these dimensions the same local codes at every use, with a local "
            "size equal to their trip count, or make them sequential"
        ),
    )


def _local(
    kernel: LoopKernel, buffer: Buffer, around: tuple[Loop, ...], options: RuleOptions
) -> Constraint:
    scope = len(around)
    between = tuple(_between(kernel, buffer, scope, reads=True))
    outer = tuple(map_id(loop) for loop in around if loop.map_id is not None)
    elsewhere = tuple(m for m in kernel.map_ids() if m not in outer)
    outside = frozenset(int(c) for c in WORK_GROUP_CODES | GLOBAL_CODES)
    predicate = all_of(
        in_a_work_group(outer, kernel.map_ids(), options),
        *(
            any_of(used_in(outer, (code,)), negate(used_in(elsewhere, (code,))))
            for code in sorted(WORK_GROUP_CODES)
        ),
        _nobody_owns(between, scope, outside),
    )
    return Constraint(
        id=f"{SHARED}/{buffer.name}",
        rule=SHARED,
        subjects=tuple(dict.fromkeys((*outer, *_subjects(between, scope)))),
        predicate=predicate,
        provenance=Provenance(PARALLEL_MAPPING, "4.3", "(2)"),
        buffer=buffer.name,
        sentence=(
            f"{buffer.name} is in local memory, which one work-group alone can see, so every "
            "work-group dimension of the kernel stands around it and none between it and its uses"
        ),
        remedy="put work-group maps around the buffer, or the buffer in global memory",
    )


def _between(
    kernel: LoopKernel, buffer: Buffer, scope: int, *, reads: bool
) -> Iterator[tuple[Loop, ...]]:
    """The loops around each use of the buffer, deeper than its scope."""
    for statement, loops in walk(kernel.statements):
        if not isinstance(statement, Store) or len(loops) <= scope:
            continue
        used = statement.buffer.name == buffer.name
        if reads:
            used = used or any(load.buffer.name == buffer.name for load in loads(statement.value))
        if used:
            yield loops


def _uses(
    kernel: LoopKernel, buffer: Buffer
) -> Iterator[tuple[tuple[Loop, ...], tuple[Expr, ...]]]:
    """Each access of the buffer: the loops around it and its indices."""
    seen: set[object] = set()
    for statement, loops in walk(kernel.statements):
        if not isinstance(statement, Store):
            continue
        accesses = [load.indices for load in loads(statement.value) if load.buffer == buffer]
        if statement.buffer == buffer:
            accesses.append(statement.indices)
        for indices in accesses:
            key = (tuple(id(loop) for loop in loops), indices[: buffer.spread])
            if key not in seen:
                seen.add(key)
                yield loops, indices


def _nobody_owns(
    uses: tuple[tuple[Loop, ...], ...], scope: int, codes: frozenset[int]
) -> Predicate:
    return all_of(
        *(
            negate(owner_in(loops, position, codes))
            for loops in uses
            for position in range(scope, len(loops))
            if loops[position].map_id is not None
        )
    )


def _subjects(uses: tuple[tuple[Loop, ...], ...], scope: int) -> tuple[MapId, ...]:
    ids = (map_id(loop) for loops in uses for loop in loops[scope:] if loop.map_id is not None)
    return tuple(dict.fromkeys(ids))
