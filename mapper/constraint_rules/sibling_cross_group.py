"""Rule cross-group-dependence, in the conservative form for a bare nest tree.

Missing in CC'22, which states in section 2.1 that OpenCL has no global synchronisation but
prints no rule. An element that one work-group or global thread writes and another reads in the
same kernel would need a barrier across the grid. A bare tree has no index functions, so every
dependence between siblings is taken to cross: no work-group or global map inside them.
"""

from __future__ import annotations

from collections.abc import Iterator

from mapper.constraint_rules.kernel_context import KernelContext
from mapper.constraint_rules.owners import used_in
from mapper.constraint_rules.predicate import negate
from mapper.constraint_rules.rule import (
    NESTMAP,
    STRICT_ONLY,
    Constraint,
    Provenance,
    Rule,
    RuleOptions,
)
from mapper.constraint_rules.sibling_dependences import sibling_dependences
from mapper.schedule import GLOBAL_CODES, WORK_GROUP_CODES

RULE_ID = "cross-group-dependence"


def produce(context: KernelContext, options: RuleOptions) -> Iterator[Constraint]:
    """One instance for each dependence between siblings; none where buffers are known.

    Siblings are never perfectly nested, so an owner of a map inside them stands inside too.
    """
    del options
    if context.nest.known_buffers:
        return
    for dependence in sibling_dependences(context):
        first, second = dependence.producer, dependence.consumer
        yield Constraint(
            id=f"{RULE_ID}/{dependence.name}",
            rule=RULE_ID,
            subjects=dependence.inside,
            predicate=negate(used_in(dependence.inside, WORK_GROUP_CODES | GLOBAL_CODES)),
            provenance=Provenance(NESTMAP, "2.1"),
            buffer=None,
            sentence=(
                f"map {second} reads from {dependence.memory.value} memory what map {first} "
                "writes, and OpenCL has no barrier across work-groups between them"
            ),
            remedy=(
                f"put work-group and global maps around both {first} and {second}, or cut the "
                "program into two kernels between them"
            ),
        )


RULES = (Rule(RULE_ID, STRICT_ONLY, produce),)
