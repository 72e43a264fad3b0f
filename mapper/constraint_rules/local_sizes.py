"""Rule local-sizes: a dimension that no map uses has local size 1.

Missing in CC'22, where local sizes are tuned after the mapping. Threads in a dimension that no
map indexes would all do the same work.
"""

from __future__ import annotations

from collections.abc import Iterator

from mapper.constraint_rules.kernel_context import KernelContext
from mapper.constraint_rules.owners import used_in
from mapper.constraint_rules.predicate import LocalSizeVariable, any_of, member
from mapper.constraint_rules.rule import (
    NESTMAP,
    STRICT_ONLY,
    Constraint,
    Provenance,
    Rule,
    RuleOptions,
)
from mapper.schedule import DIMENSIONS, Level, parallel_code

RULE_ID = "local-sizes"


def produce(context: KernelContext, options: RuleOptions) -> Iterator[Constraint]:
    """One instance for each dimension."""
    del options
    for dimension in DIMENSIONS:
        codes = [
            parallel_code(level, dimension)
            for level in (Level.LOCAL, Level.WORK_GROUP, Level.GLOBAL)
        ]
        size = LocalSizeVariable(context.nest.name, dimension)
        yield Constraint(
            id=f"{RULE_ID}/{context.nest.name}/{dimension}",
            rule=RULE_ID,
            subjects=(),
            predicate=any_of(member(size, (1,)), used_in(context.map_ids, codes)),
            provenance=Provenance(NESTMAP, ""),
            buffer=None,
            sentence=(
                f"no map of kernel {context.nest.name} uses dimension {dimension}, so more "
                "than one thread there would repeat the same work"
            ),
            remedy=f"set the local size in dimension {dimension} to 1",
        )


RULES = (Rule(RULE_ID, STRICT_ONLY, produce),)
