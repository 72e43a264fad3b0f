"""Rule local-hierarchy: no work-group map stands inside a local map of its dimension.

CC'22, section 4.4, rule (6). A fused map has no parallel code of its own, so the printed form
already speaks of owners. It keeps no wrong program out, and with ``free_grid`` strict mode does
without it.
"""

from __future__ import annotations

from collections.abc import Iterator

from mapper.constraint_rules.kernel_context import KernelContext
from mapper.constraint_rules.owners import has_code, used_in
from mapper.constraint_rules.predicate import all_of, negate
from mapper.constraint_rules.rule import (
    PAPER_ONLY,
    PARALLEL_MAPPING,
    STRICT_ONLY,
    Constraint,
    Provenance,
    Rule,
    RuleOptions,
)
from mapper.schedule import DIMENSIONS, Level, parallel_code

RULE_ID = "local-hierarchy"


def produce(context: KernelContext, options: RuleOptions) -> Iterator[Constraint]:
    """One instance for each map with concrete maps inside."""
    del options  # the printed rule knows no switch
    for map_id in context.map_ids:
        nested = context.nested(map_id)
        if not nested:
            continue
        inverted = (
            all_of(
                has_code(map_id, (parallel_code(Level.LOCAL, dimension),)),
                used_in(nested, (parallel_code(Level.WORK_GROUP, dimension),)),
            )
            for dimension in DIMENSIONS
        )
        yield Constraint(
            id=f"{RULE_ID}/{map_id}",
            rule=RULE_ID,
            subjects=(map_id, *nested),
            predicate=all_of(*(negate(part) for part in inverted)),
            provenance=Provenance(PARALLEL_MAPPING, "4.4", "(6)"),
            buffer=None,
            sentence=(
                f"map {map_id} spreads work over the threads of a work-group before a map "
                "inside it spreads it over work-groups in the same dimension"
            ),
            remedy="let the outer map be the work-group map and the inner one the local map",
        )


def produce_strict(context: KernelContext, options: RuleOptions) -> Iterator[Constraint]:
    """As printed, unless the grid is free."""
    if not options.free_grid:
        yield from produce(context, options)


RULES = (
    Rule(RULE_ID, PAPER_ONLY, produce),
    Rule(RULE_ID, STRICT_ONLY, produce_strict),
)
