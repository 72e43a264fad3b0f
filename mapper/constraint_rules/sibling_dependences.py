"""What data-flow order alone tells of dependences, for a bare nest tree.

A bare tree knows memories but no buffers and index functions. Siblings under one map, or the
roots of one kernel, stand in data-flow order; so a later sibling that reads local or global
memory is taken to read whatever an earlier one writes there, in an unknown order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mapper.ast_model.nest import NestMap
from mapper.ast_model.nodes import MapId
from mapper.ast_model.types import Memory
from mapper.constraint_rules.kernel_context import KernelContext


@dataclass(frozen=True, slots=True)
class SiblingDependence:
    """``consumer`` reads from ``memory`` what ``producer`` writes there.

    ``around`` are the maps around both, outermost first; ``inside`` are the maps of the two
    subtrees on chains that write or read the memory.
    """

    producer: MapId
    consumer: MapId
    memory: Memory
    around: tuple[MapId, ...]
    inside: tuple[MapId, ...]

    @property
    def name(self) -> str:
        """A name for constraint ids."""
        return f"{self.producer}>{self.consumer}/{self.memory.value}"


def sibling_dependences(context: KernelContext) -> Iterator[SiblingDependence]:
    """Every dependence between siblings, in the order of the tree."""
    groups: list[tuple[tuple[MapId, ...], tuple[NestMap, ...]]] = [((), context.nest.roots)]
    for item in context.maps:
        groups.append(((*context.outer(item.id), item.id), item.nested))
    for around, siblings in groups:
        for position, consumer in enumerate(siblings):
            for producer in siblings[:position]:
                for memory in (Memory.LOCAL, Memory.GLOBAL):
                    if producer.writes is memory and memory in consumer.reads:
                        inside = (
                            *_maps_that_write(context, producer, memory),
                            *_maps_of(context, consumer),
                        )
                        yield SiblingDependence(producer.id, consumer.id, memory, around, inside)


def _maps_of(context: KernelContext, item: NestMap) -> tuple[MapId, ...]:
    return (item.id, *context.nested(item.id))


def _maps_that_write(context: KernelContext, item: NestMap, memory: Memory) -> tuple[MapId, ...]:
    """The maps of the subtree on chains that write the memory (all, if none says so)."""
    subtree = _maps_of(context, item)
    on_chains = {
        map_id
        for chain in context.chains
        if item.id in chain.maps and memory in chain.writes
        for map_id in chain.maps
    }
    return tuple(map_id for map_id in subtree if map_id in on_chains) or subtree
