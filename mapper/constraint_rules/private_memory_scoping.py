"""Rule private-memory-scoping: private memory belongs to one thread.

CC'22, section 4.3, rule (1): a map that uses private memory is not parallel. Strict: nor is
its owner, for the iterations of a fused map are run by the owner's threads.
"""

from __future__ import annotations

from collections.abc import Iterator

from mapper.ast_model.nest import NestMap
from mapper.ast_model.types import Memory
from mapper.constraint_rules.kernel_context import KernelContext
from mapper.constraint_rules.owners import has_code, owner_has_code
from mapper.constraint_rules.predicate import Predicate, negate
from mapper.constraint_rules.rule import (
    PAPER_ONLY,
    PARALLEL_MAPPING,
    STRICT_ONLY,
    Constraint,
    Provenance,
    Rule,
    RuleOptions,
)
from mapper.schedule import PARALLEL_CODES

RULE_ID = "private-memory-scoping"


def _constraint(item: NestMap, predicate: Predicate) -> Constraint:
    return Constraint(
        id=f"{RULE_ID}/{item.id}",
        rule=RULE_ID,
        subjects=(item.id,),
        predicate=predicate,
        provenance=Provenance(PARALLEL_MAPPING, "4.3", "(1)"),
        buffer=None,
        sentence=(
            f"map {item.id} uses private memory, which one thread alone can see, so its "
            "iterations cannot be spread over threads"
        ),
        remedy=(
            f"make map {item.id} sequential, fuse it with a sequential map, or move its data "
            "to local memory"
        ),
    )


def produce_paper(context: KernelContext, options: RuleOptions) -> Iterator[Constraint]:
    """One instance for each map that uses private memory."""
    del options  # the printed rule knows no switch
    for item in context.maps:
        if item.uses(Memory.PRIVATE):
            yield _constraint(item, negate(has_code(item.id, PARALLEL_CODES)))


def produce_strict(context: KernelContext, options: RuleOptions) -> Iterator[Constraint]:
    """One instance for each map that uses private memory, about its owner.

    With ``replicate_private`` only a map whose result is private is bound: every thread has
    a copy of a private result, so that a parallel map may read it.
    """
    for item in context.maps:
        if item.spreads:
            # Rule (1) is kept buffer by buffer there (buffer_scoping).
            continue
        bound = item.touches(Memory.PRIVATE)
        if options.replicate_private:
            bound = item.writes is Memory.PRIVATE
        if bound:
            yield _constraint(item, negate(owner_has_code(context, item.id, PARALLEL_CODES)))


RULES = (
    Rule(RULE_ID, PAPER_ONLY, produce_paper),
    Rule(RULE_ID, STRICT_ONLY, produce_strict),
)
