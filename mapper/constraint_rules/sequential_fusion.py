"""Rule sequential-fusion, a heuristic: perfectly nested maps are not both sequential.

CC'22, section 4.5, rule (8). Of neighbours it loses a second way to write one kernel, of
sequential maps around a parallel one the kernel too. It can be switched off, and is counted
apart from the other rules. ``perfectlyNestedIn`` is meant transitively: at most one sequential
map in one perfect run. (Between direct neighbours alone the published tree of 43 maps would have
far more than its 41,094 mappings.)
"""

from __future__ import annotations

from collections.abc import Iterator

from mapper.ast_model.nodes import MapId
from mapper.constraint_rules.kernel_context import KernelContext
from mapper.constraint_rules.owners import has_code, used_in
from mapper.constraint_rules.predicate import all_of, negate
from mapper.constraint_rules.rule import (
    BOTH_MODES,
    PARALLEL_MAPPING,
    Constraint,
    Provenance,
    Rule,
    RuleOptions,
)
from mapper.schedule import ScheduleCode

RULE_ID = "sequential-fusion"
_SEQUENTIAL = (ScheduleCode.SEQUENTIAL,)


def _constraint(map_id: MapId, outer: tuple[MapId, ...]) -> Constraint:
    names = ", ".join(str(other) for other in outer)
    return Constraint(
        id=f"{RULE_ID}/{map_id}",
        rule=RULE_ID,
        subjects=(*outer, map_id),
        predicate=negate(all_of(has_code(map_id, _SEQUENTIAL), used_in(outer, _SEQUENTIAL))),
        provenance=Provenance(PARALLEL_MAPPING, "4.5", "(8)"),
        buffer=None,
        sentence=(
            f"map {map_id} is perfectly nested in {names}: two sequential loops there are one "
            "fused loop, which is kept instead"
        ),
        remedy=f"fuse map {map_id} (code 1), or switch sequential_fusion off",
    )


def produce(context: KernelContext, options: RuleOptions) -> Iterator[Constraint]:
    """One instance for each perfectly nested map and all maps above it in its run."""
    if not options.sequential_fusion:
        return
    for map_id in context.map_ids:
        above = context.perfect_run_above(map_id)
        if above:
            yield _constraint(map_id, above)


RULES = (Rule(RULE_ID, BOTH_MODES, produce),)
