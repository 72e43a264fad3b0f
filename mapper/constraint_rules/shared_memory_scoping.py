"""Rule shared-memory-scoping: local memory is touched only inside one work-group.

CC'22, section 4.3, rule (2). As printed the rule asks for no outer work-group map where a chain
uses no work-group dimension; the paper counts one more instance, "some work-group map exists".
Strict closes the hole: a map that uses local memory, fused or not, is run by no work-group or
global map, some outer map is a work-group map, and every work-group dimension that the kernel
uses anywhere is on an outer map. With ``free_grid`` one work-group may run the whole kernel: no
work-group map then, and no global map either, whose threads would share the buffer.
"""

from __future__ import annotations

from collections.abc import Iterator

from mapper.ast_model.nest import NestMap
from mapper.ast_model.nodes import MapId
from mapper.ast_model.types import Memory
from mapper.constraint_rules.kernel_context import KernelContext
from mapper.constraint_rules.owners import has_code, owner_has_code, used_in, used_only_if_in
from mapper.constraint_rules.predicate import Predicate, all_of, implies, negate
from mapper.constraint_rules.rule import (
    PAPER_ONLY,
    PARALLEL_MAPPING,
    STRICT_ONLY,
    Constraint,
    Provenance,
    Rule,
    RuleOptions,
)
from mapper.schedule import GLOBAL_CODES, WORK_GROUP_CODES

RULE_ID = "shared-memory-scoping"
_PROVENANCE = Provenance(PARALLEL_MAPPING, "4.3", "(2)")


def _constraint(item: NestMap, predicate: Predicate) -> Constraint:
    return Constraint(
        id=f"{RULE_ID}/{item.id}",
        rule=RULE_ID,
        subjects=(item.id,),
        predicate=predicate,
        provenance=_PROVENANCE,
        buffer=None,
        sentence=(
            f"map {item.id} uses local memory, which one work-group alone can see, so it "
            "runs inside one work-group: sequential or local, under work-group maps"
        ),
        remedy=(
            f"make map {item.id} sequential, fused or local and maps around it work-group "
            "maps in every work-group dimension of the kernel, or move its data to global memory"
        ),
    )


def produce_paper(context: KernelContext, options: RuleOptions) -> Iterator[Constraint]:
    """One instance for each map that uses local memory and one for the kernel."""
    del options  # the printed rule knows no switch
    users = [item for item in context.maps if item.uses(Memory.LOCAL)]
    for item in users:
        yield _constraint(item, all_of(*_printed_parts(context, item)))
    if users:
        yield Constraint(
            id=f"{RULE_ID}/{context.nest.name}/some-work-group",
            rule=RULE_ID,
            subjects=context.map_ids,
            predicate=used_in(context.map_ids, WORK_GROUP_CODES),
            provenance=Provenance(PARALLEL_MAPPING, "5.3, Table 4", "unprinted"),
            buffer=None,
            sentence="the kernel uses local memory, so some map is a work-group map",
            remedy="make an outer map a work-group map",
        )


def _printed_parts(context: KernelContext, item: NestMap) -> Iterator[Predicate]:
    """Rule (2) as printed, with the part that speaks of the map alone outside of "for all w".

    So read, it admits nests without any work-group map, but no global map that itself uses
    local memory: 13 mappings of Listing 3, 9 together with "some work-group map exists".
    """
    yield negate(has_code(item.id, WORK_GROUP_CODES | GLOBAL_CODES))
    outer = context.outer(item.id)
    for chain in context.chains:
        if item.id not in chain.maps:
            continue
        for code in sorted(WORK_GROUP_CODES):
            yield implies(used_in(chain.maps, (code,)), used_in(outer, (code,)))


def produce_strict(context: KernelContext, options: RuleOptions) -> Iterator[Constraint]:
    """One instance for each map that uses local memory, about its owner."""
    for item in context.maps:
        if not item.uses(Memory.LOCAL):
            continue
        outer = context.outer(item.id)
        yield _constraint(
            item,
            all_of(
                negate(owner_has_code(context, item.id, WORK_GROUP_CODES | GLOBAL_CODES)),
                in_a_work_group(outer, context.map_ids, options),
                *(used_only_if_in(context, outer, code) for code in sorted(WORK_GROUP_CODES)),
            ),
        )


def in_a_work_group(
    outer: tuple[MapId, ...], maps: tuple[MapId, ...], options: RuleOptions
) -> Predicate:
    """Who shares local memory is one work-group: of the maps around it, or of the kernel's maps."""
    if options.free_grid:
        return negate(used_in(maps, GLOBAL_CODES))
    return used_in(outer, WORK_GROUP_CODES)


RULES = (
    Rule(RULE_ID, PAPER_ONLY, produce_paper),
    Rule(RULE_ID, STRICT_ONLY, produce_strict),
)
