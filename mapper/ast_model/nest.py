"""The nest of concrete maps: what the constraint rules see of a program or a bare nest tree.

A map is *concrete* when its body contains a write; only concrete maps get a schedule.
Sources: "Mapping Parallelism in a Functional IR through Constraint Satisfaction" (CC'22),
section 4.2, Figure 3 and Table 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mapper.ast_model.index_expr import Expr
from mapper.ast_model.nodes import MapId
from mapper.ast_model.types import Memory


@dataclass(frozen=True, slots=True)
class NestMap:
    """One concrete map.

    ``reads`` are the memories of its argument and of buffers that its body captures;
    ``writes`` is the memory of its result. ``perfectly_nested``: it is the whole body of
    the map around it, applied to that map's parameter. ``nested`` stand in data-flow
    order. A map over nothing but constants ``reads_constants``: the paper counts its argument as
    private memory, though there is no buffer. ``leaf_writes`` are the memories of writes that
    stand in its body under no further map. ``spreads``: its private result may be spread over
    the threads that run it (see ``To.spread``).
    """

    id: MapId
    trip: Expr
    reads: frozenset[Memory]
    writes: Memory
    perfectly_nested: bool
    nested: tuple[NestMap, ...]
    leaf_writes: tuple[Memory, ...]
    reads_constants: bool = False
    spreads: bool = False

    def uses(self, memory: Memory) -> bool:
        """True if the map reads or writes this memory."""
        return memory in self.reads or self.writes is memory

    def touches(self, memory: Memory) -> bool:
        """As :meth:`uses`, but a constant argument is no memory."""
        return self.writes is memory or (memory in self.reads and not self.reads_constants)


@dataclass(frozen=True, slots=True)
class Nest:
    """The forest of one kernel, in data-flow order.

    ``root_writes``: writes under no map at all. ``known_buffers`` is False for a bare
    nest tree, whose buffers and index functions are not known.
    """

    name: str
    roots: tuple[NestMap, ...]
    root_writes: tuple[Memory, ...] = ()
    known_buffers: bool = False


def maps_below(maps: Iterable[NestMap]) -> Iterator[NestMap]:
    """Maps and all that is nested in them, in program order, owners before what they own."""
    for item in maps:
        yield item
        yield from maps_below(item.nested)
