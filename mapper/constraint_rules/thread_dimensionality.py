"""Rule thread-dimensionality: local and work-group dimensions in use are the same.

CC'22, section 4.4, rules (4) and (5). Rule (4) also rejects a local dimension of a single
work-group, and rule (5) a work-group dimension of one work-item, which run right; with
``free_grid`` strict mode admits them.
"""

from __future__ import annotations

from collections.abc import Iterator

from mapper.ast_model.nodes import MapId
from mapper.constraint_rules.kernel_context import KernelContext
from mapper.constraint_rules.owners import used_in
from mapper.constraint_rules.predicate import (
    LocalSizeVariable,
    Predicate,
    all_of,
    any_of,
    implies,
    member,
)
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

RULE_ID = "thread-dimensionality"


def _same_dimensions(maps: tuple[MapId, ...]) -> Iterator[Predicate]:
    for dimension in DIMENSIONS:
        local = used_in(maps, (parallel_code(Level.LOCAL, dimension),))
        group = used_in(maps, (parallel_code(Level.WORK_GROUP, dimension),))
        yield all_of(implies(local, group), implies(group, local))


def _no_idle_copies(kernel: str, maps: tuple[MapId, ...]) -> Iterator[Predicate]:
    """Work-items of a work-group dimension that no local map tells apart: there is one."""
    for dimension in DIMENSIONS:
        local = used_in(maps, (parallel_code(Level.LOCAL, dimension),))
        group = used_in(maps, (parallel_code(Level.WORK_GROUP, dimension),))
        alone = member(LocalSizeVariable(kernel, dimension), (1,))
        yield implies(group, any_of(local, alone))


def _constraint(context: KernelContext, parts: Iterator[Predicate]) -> Constraint:
    return Constraint(
        id=f"{RULE_ID}/{context.nest.name}",
        rule=RULE_ID,
        subjects=context.map_ids,
        predicate=all_of(*parts),
        provenance=Provenance(PARALLEL_MAPPING, "4.4", "(4), (5)"),
        buffer=None,
        sentence=(
            "on every chain of maps the local and the work-group dimensions in use are the "
            "same, or else work-groups or threads would repeat or lose iterations"
        ),
        remedy="pair every work-group map with a local map of its dimension, and vice versa",
    )


def produce_paper(context: KernelContext, options: RuleOptions) -> Iterator[Constraint]:
    """One instance for the kernel: every chain, both directions."""
    del options  # the printed rule knows no switch
    yield _constraint(
        context,
        (part for chain in context.chains for part in _same_dimensions(chain.maps)),
    )


def produce_strict(context: KernelContext, options: RuleOptions) -> Iterator[Constraint]:
    """One instance for the kernel; the kernel as a whole, and every chain.

    With ``replicate_private`` a chain that writes only private memory is exempt.
    """

    chains = [
        chain.maps
        for chain in context.chains
        if not (options.replicate_private and chain.only_private)
    ]

    def parts() -> Iterator[Predicate]:
        for maps in (context.map_ids, *chains):
            if options.free_grid:
                yield from _no_idle_copies(context.nest.name, maps)
            else:
                yield from _same_dimensions(maps)

    yield _constraint(context, parts())


RULES = (
    Rule(RULE_ID, PAPER_ONLY, produce_paper),
    Rule(RULE_ID, STRICT_ONLY, produce_strict),
)
