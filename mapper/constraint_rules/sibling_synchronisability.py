"""Rule synchronisability, in the conservative form for a bare nest tree.

CC'22, section 4.6: the paper checks after the solver that interdependent threads can be
synchronised, and loses candidates there. Here it is a constraint over the local sizes. Local
maps inside dependent siblings need a barrier between them, and a barrier must be met by every
thread of the work-group the same number of times: each local map around it has a trip count,
fused maps included, that its local size divides. Where such a trip count is a symbol, which a
bare tree gives no value, the barrier is not allowed. Enclosing loops are satisfied by a second
barrier in the same place, at the end of the same body.
"""

from __future__ import annotations

from collections.abc import Iterator

from mapper.constraint_rules.kernel_context import KernelContext
from mapper.constraint_rules.owners import fused_trip_count, has_code, used_in
from mapper.constraint_rules.predicate import (
    FALSE,
    LocalSizeVariable,
    Predicate,
    all_of,
    divides,
    implies,
)
from mapper.constraint_rules.rule import (
    PARALLEL_MAPPING,
    STRICT_ONLY,
    Constraint,
    Provenance,
    Rule,
    RuleOptions,
)
from mapper.constraint_rules.sibling_dependences import SiblingDependence, sibling_dependences
from mapper.schedule import DIMENSIONS, LOCAL_CODES, Level, parallel_code

RULE_ID = "synchronisability"


def _uniform(context: KernelContext, dependence: SiblingDependence) -> Iterator[Predicate]:
    """Each local map around the barrier runs equally often in every thread."""
    for position, map_id in enumerate(dependence.around):
        trips = fused_trip_count(dependence.around[position:], context)
        for dimension in DIMENSIONS:
            size = LocalSizeVariable(context.nest.name, dimension)
            yield implies(
                has_code(map_id, (parallel_code(Level.LOCAL, dimension),)),
                FALSE if trips is None else divides(size, trips),
            )


def produce(context: KernelContext, options: RuleOptions) -> Iterator[Constraint]:
    """One instance for each dependence between siblings; none where buffers are known."""
    del options
    if context.nest.known_buffers:
        return
    for dependence in sibling_dependences(context):
        if not dependence.around:
            continue
        first, second = dependence.producer, dependence.consumer
        yield Constraint(
            id=f"{RULE_ID}/{dependence.name}",
            rule=RULE_ID,
            subjects=(*dependence.around, *dependence.inside),
            predicate=implies(
                used_in(dependence.inside, LOCAL_CODES),
                all_of(*_uniform(context, dependence)),
            ),
            provenance=Provenance(PARALLEL_MAPPING, "4.6"),
            buffer=None,
            sentence=(
                f"between map {first}, which writes {dependence.memory.value} memory, and map "
                f"{second}, which reads it, stands a barrier inside a local loop that not "
                "every thread of the work-group runs equally often"
            ),
            remedy=(
                "choose a local size that divides the trip count of the local map around both, "
                f"or put the local map inside {first} and {second}"
            ),
        )


RULES = (Rule(RULE_ID, STRICT_ONLY, produce),)
