"""Rule no-mixing: global maps stand in no kernel with work-group or local maps.

Unprinted in CC'22, but counted in its Table 4: a global id already is a work-group and a local
id, so that a kernel that uses both kinds would distribute the same threads twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from mapper.constraint_rules.kernel_context import KernelContext
from mapper.constraint_rules.owners import used_in
from mapper.constraint_rules.predicate import all_of, negate
from mapper.constraint_rules.rule import (
    BOTH_MODES,
    PARALLEL_MAPPING,
    Constraint,
    Provenance,
    Rule,
    RuleOptions,
)
from mapper.schedule import GLOBAL_CODES, LOCAL_CODES, WORK_GROUP_CODES

RULE_ID = "no-mixing"


def produce(context: KernelContext, options: RuleOptions) -> Iterator[Constraint]:
    """One instance for the kernel."""
    del options
    maps = context.map_ids
    both = all_of(used_in(maps, GLOBAL_CODES), used_in(maps, WORK_GROUP_CODES | LOCAL_CODES))
    yield Constraint(
        id=f"{RULE_ID}/{context.nest.name}",
        rule=RULE_ID,
        subjects=maps,
        predicate=negate(both),
        provenance=Provenance(PARALLEL_MAPPING, "5.3, Table 4", "unprinted"),
        buffer=None,
        sentence=(
            f"kernel {context.nest.name} indexes its threads either globally or by work-group "
            "and local id: both together distribute the same threads twice"
        ),
        remedy="use global maps only, or work-group and local maps only",
    )


RULES = (Rule(RULE_ID, BOTH_MODES, produce),)
