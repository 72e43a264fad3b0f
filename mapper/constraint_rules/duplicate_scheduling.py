"""Rule duplicate-scheduling: nested maps do not share a parallel level and dimension.

CC'22, section 4.4, rule (3). A fused map has the code 1 and its owner the parallel one, so the
printed form already speaks of owners: no two parallel owners of a chain share a code.
"""

from __future__ import annotations

from collections.abc import Iterator

from mapper.ast_model.nodes import Relation
from mapper.constraint_rules.kernel_context import KernelContext
from mapper.constraint_rules.owners import has_code
from mapper.constraint_rules.predicate import CodeVariable, all_of, compare, implies
from mapper.constraint_rules.rule import (
    BOTH_MODES,
    PARALLEL_MAPPING,
    Constraint,
    Provenance,
    Rule,
    RuleOptions,
)
from mapper.schedule import PARALLEL_CODES

RULE_ID = "duplicate-scheduling"


def produce(context: KernelContext, options: RuleOptions) -> Iterator[Constraint]:
    """One instance for each map with concrete maps inside."""
    del options
    for map_id in context.map_ids:
        nested = context.nested(map_id)
        if not nested:
            continue
        own = CodeVariable(map_id)
        differs = (compare(Relation.NE, own, CodeVariable(inner)) for inner in nested)
        yield Constraint(
            id=f"{RULE_ID}/{map_id}",
            rule=RULE_ID,
            subjects=(map_id, *nested),
            predicate=implies(has_code(map_id, PARALLEL_CODES), all_of(*differs)),
            provenance=Provenance(PARALLEL_MAPPING, "4.4", "(3)"),
            buffer=None,
            sentence=(
                f"map {map_id} and a map inside it would both be indexed by the same thread "
                "id, so that iterations would be lost"
            ),
            remedy=f"give map {map_id} or the map inside it another level or dimension",
        )


RULES = (Rule(RULE_ID, BOTH_MODES, produce),)
