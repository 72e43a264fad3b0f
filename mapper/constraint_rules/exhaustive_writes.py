"""Rule exhaustive-writes: threads do not write the same shared element.

Missing in CC'22. A write to local or global memory, that of a reduce accumulator too, has all
parallel dimensions of the kernel among its outer maps; else several threads would write it.
Whether chains may be replicated by every thread makes no difference here.
"""

from __future__ import annotations

from collections.abc import Iterator

from mapper.constraint_rules.kernel_context import KernelContext
from mapper.constraint_rules.owners import PARALLEL_IN_ORDER, used_only_if_in
from mapper.constraint_rules.predicate import all_of
from mapper.constraint_rules.rule import (
    NESTMAP,
    STRICT_ONLY,
    Constraint,
    Provenance,
    Rule,
    RuleOptions,
)

RULE_ID = "exhaustive-writes"


def produce(context: KernelContext, options: RuleOptions) -> Iterator[Constraint]:
    """One instance for each chain that writes local or global memory."""
    del options
    for chain in context.chains:
        if chain.only_private:
            continue
        leaf = chain.maps[-1] if chain.maps else context.nest.name
        yield Constraint(
            id=f"{RULE_ID}/{leaf}",
            rule=RULE_ID,
            subjects=chain.maps,
            predicate=all_of(
                *(used_only_if_in(context, chain.maps, code) for code in PARALLEL_IN_ORDER)
            ),
            provenance=Provenance(NESTMAP, ""),
            buffer=None,
            sentence=(
                f"the write at {leaf} goes to memory that threads share and has not every "
                "parallel dimension of the kernel around it, so several threads write the "
                "same element: a race"
            ),
            remedy=f"put every parallel dimension around {leaf}, or write to private memory",
        )


RULES = (Rule(RULE_ID, STRICT_ONLY, produce),)
