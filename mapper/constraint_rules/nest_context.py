"""Contextual functions over the nest of one kernel: nested and outer maps, chains, runs.

"Mapping Parallelism in a Functional IR through Constraint Satisfaction" (CC'22), section 4.2,
Table 3. A *chain* is a root-to-leaf path of concrete maps, one for every leaf, a leaf being a
map that has nothing nested or writes under no further map.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mapper.ast_model.nest import Nest, NestMap
from mapper.ast_model.nodes import MapId
from mapper.ast_model.types import Memory
from mapper.errors import InputError, Problem


@dataclass(frozen=True, slots=True)
class Chain:
    """The maps around some writes, outermost first, and the memories of these writes.

    ``maps`` is empty for writes that stand under no map.
    """

    maps: tuple[MapId, ...]
    writes: frozenset[Memory]

    @property
    def only_private(self) -> bool:
        """True if nothing but private memory is written here."""
        return self.writes <= {Memory.PRIVATE}


class NestContext:
    """The nest of one kernel with its contextual functions; never changed once built."""

    __slots__ = ("_maps", "_nested", "_outer", "chains", "nest")

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self._maps: dict[MapId, NestMap] = {}
        self._outer: dict[MapId, tuple[MapId, ...]] = {}
        self._nested: dict[MapId, tuple[MapId, ...]] = {}
        for root in nest.roots:
            self._enter(root, ())
        self.chains: tuple[Chain, ...] = tuple(self._find_chains())

    def _enter(self, item: NestMap, outer: tuple[MapId, ...]) -> tuple[MapId, ...]:
        if item.id in self._maps:
            raise InputError(
                Problem(f"{self.nest.name}/{item.id}", "two maps have one id", str(item.id))
            )
        self._maps[item.id] = item
        self._outer[item.id] = outer
        nested: list[MapId] = []
        for child in item.nested:
            nested.append(child.id)
            nested.extend(self._enter(child, (*outer, item.id)))
        self._nested[item.id] = tuple(nested)
        return self._nested[item.id]

    def _find_chains(self) -> Iterator[Chain]:
        if self.nest.root_writes:
            yield Chain((), frozenset(self.nest.root_writes))
        for item in self.maps:
            if item.leaf_writes or not item.nested:
                # A bare tree may leave out what its leaves write: their results, then.
                writes = frozenset(item.leaf_writes or (item.writes,))
                yield Chain((*self.outer(item.id), item.id), writes)

    @property
    def maps(self) -> tuple[NestMap, ...]:
        """All concrete maps, outer before inner, in data-flow order."""
        return tuple(self._maps[map_id] for map_id in self._outer)

    @property
    def map_ids(self) -> tuple[MapId, ...]:
        """The ids of all concrete maps, in the order of ``maps``."""
        return tuple(self._outer)

    def map(self, map_id: MapId) -> NestMap:
        """The map of this id; InputError if there is none."""
        if map_id not in self._maps:
            raise InputError(
                Problem(
                    self.nest.name,
                    "no such map",
                    str(map_id),
                    ", ".join(str(known) for known in self._maps),
                )
            )
        return self._maps[map_id]

    def outer(self, map_id: MapId) -> tuple[MapId, ...]:
        """OuterMaps: the maps around this one, outermost first."""
        return self._outer[self.map(map_id).id]

    def nested(self, map_id: MapId) -> tuple[MapId, ...]:
        """NestedMaps: all maps inside this one, however deep."""
        return self._nested[self.map(map_id).id]

    def perfect_run_above(self, map_id: MapId) -> tuple[MapId, ...]:
        """The maps around this one in its perfect run, innermost first.

        These are the possible owners of the map besides itself.
        """
        found: list[MapId] = []
        outer = list(self.outer(map_id))
        current = self.map(map_id)
        while current.perfectly_nested and outer:
            current = self.map(outer.pop())
            found.append(current.id)
        return tuple(found)
