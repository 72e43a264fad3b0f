"""What rules ask of the nest of one kernel, by map id: nested and outer maps, chains, runs.

On top of ``mapper.ast_model.context``: chains say what their leaves write, and writes under no
map are a chain too.
"""

from __future__ import annotations

from dataclasses import dataclass

from mapper.ast_model.context import NestContext
from mapper.ast_model.nest import Nest, NestMap
from mapper.ast_model.nodes import MapId
from mapper.ast_model.types import Memory


@dataclass(frozen=True, slots=True)
class LeafChain:
    """The maps around some writes, outermost first, and the memories of these writes.

    ``maps`` is empty for writes that stand under no map.
    """

    maps: tuple[MapId, ...]
    writes: frozenset[Memory]

    @property
    def only_private(self) -> bool:
        """True if nothing but private memory is written here."""
        return self.writes <= {Memory.PRIVATE}


class KernelContext:
    """The nest of one kernel with its contextual functions; never changed once built."""

    __slots__ = ("_nested", "_outer", "_runs", "chains", "map_ids", "maps", "nest", "tree")

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.tree = NestContext(nest)
        self.maps: tuple[NestMap, ...] = self.tree.concrete_maps
        self.map_ids: tuple[MapId, ...] = tuple(item.id for item in self.maps)
        self._outer = {item.id: _ids(self.tree.outer_maps(item)) for item in self.maps}
        self._nested = {item.id: _ids(self.tree.nested_maps(item)) for item in self.maps}
        self._runs: dict[MapId, tuple[MapId, ...]] = {}
        for item in self.maps:
            parent = self.tree.parent(item)
            perfect = parent is not None and item.perfectly_nested
            self._runs[item.id] = (parent.id, *self._runs[parent.id]) if perfect and parent else ()
        # A bare tree may leave out what its leaves write: their results, then.
        found = tuple(
            LeafChain(_ids(chain), frozenset(chain[-1].leaf_writes or (chain[-1].writes,)))
            for chain in self.tree.nesting_chains
        )
        bare = (LeafChain((), frozenset(nest.root_writes)),) if nest.root_writes else ()
        self.chains: tuple[LeafChain, ...] = (*bare, *found)

    def map(self, map_id: MapId) -> NestMap:
        """The map of this id; InputError if there is none."""
        return self.tree.map(map_id)

    def outer(self, map_id: MapId) -> tuple[MapId, ...]:
        """OuterMaps: the maps around this one, outermost first."""
        return self._outer[map_id]

    def nested(self, map_id: MapId) -> tuple[MapId, ...]:
        """NestedMaps: all maps inside this one, however deep."""
        return self._nested[map_id]

    def perfect_run_above(self, map_id: MapId) -> tuple[MapId, ...]:
        """The maps around this one in its perfect run, innermost first.

        These are the possible owners of the map besides itself.
        """
        return self._runs[map_id]


def _ids(maps: tuple[NestMap, ...]) -> tuple[MapId, ...]:
    return tuple(item.id for item in maps)
