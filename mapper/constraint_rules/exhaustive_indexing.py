"""Rule exhaustive-indexing: a parallel dimension used in one chain is used in all.

CC'22, section 4.4, rule (7), for local, work-group and global dimensions alike. Strict: with
``replicate_private`` a chain that writes only private memory may be run by every thread.
"""

from __future__ import annotations

from collections.abc import Iterator

from mapper.constraint_rules.kernel_context import KernelContext, LeafChain
from mapper.constraint_rules.owners import PARALLEL_IN_ORDER, used_only_if_in
from mapper.constraint_rules.predicate import all_of
from mapper.constraint_rules.rule import (
    PAPER_ONLY,
    PARALLEL_MAPPING,
    STRICT_ONLY,
    Constraint,
    Provenance,
    Rule,
    RuleOptions,
)

RULE_ID = "exhaustive-indexing"


def _constraint(context: KernelContext, chain: LeafChain) -> Constraint:
    leaf = chain.maps[-1] if chain.maps else context.nest.name
    return Constraint(
        id=f"{RULE_ID}/{leaf}",
        rule=RULE_ID,
        subjects=chain.maps,
        predicate=all_of(
            *(used_only_if_in(context, chain.maps, code) for code in PARALLEL_IN_ORDER)
        ),
        provenance=Provenance(PARALLEL_MAPPING, "4.4", "(7)"),
        buffer=None,
        sentence=(
            f"the chain that ends in {leaf} leaves out a parallel dimension that another "
            "chain uses, so it is not said which of those threads runs it"
        ),
        remedy=f"use the same parallel dimensions on the chain that ends in {leaf}",
    )


def produce_paper(context: KernelContext, options: RuleOptions) -> Iterator[Constraint]:
    """One instance for each chain."""
    del options  # the printed rule knows no switch
    for chain in context.chains:
        if chain.maps:
            yield _constraint(context, chain)


def produce_strict(context: KernelContext, options: RuleOptions) -> Iterator[Constraint]:
    """One instance for each chain, writes under no map being a chain without maps."""
    for chain in context.chains:
        if not (options.replicate_private and chain.only_private):
            yield _constraint(context, chain)


RULES = (
    Rule(RULE_ID, PAPER_ONLY, produce_paper),
    Rule(RULE_ID, STRICT_ONLY, produce_strict),
)
