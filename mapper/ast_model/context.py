"""Where each map of a nest stands: the contextual functions of the constraint rules.

Source: "Mapping Parallelism in a Functional IR through Constraint Satisfaction" (CC'22),
section 4.2 and Table 3. The functions that tell which dimensions maps use depend on the
mapping and stand with the rules.
"""

from __future__ import annotations

from functools import cached_property

from mapper.ast_model.nest import Nest, NestMap
from mapper.ast_model.nodes import MapId
from mapper.ast_model.types import Memory
from mapper.errors import InputError, Problem

Chain = tuple[NestMap, ...]


class NestContext:
    """Contextual functions over one nest; every result is in pre-order, outer maps first.

    Maps are told apart by their ids: InputError if two share one.
    """

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self._maps: dict[MapId, NestMap] = {}
        self._parents: dict[MapId, NestMap | None] = {}
        # Pre-order, so the maps nested in one follow it directly: how many there are.
        self._descendants: dict[MapId, int] = {}
        self._positions: dict[MapId, int] = {}
        stack: list[tuple[NestMap, NestMap | None]] = [(m, None) for m in reversed(nest.roots)]
        while stack:
            current, parent = stack.pop()
            if current.id in self._maps:
                raise InputError(Problem(f"maps/{current.id}", "two maps have one id"))
            self._positions[current.id] = len(self._maps)
            self._maps[current.id] = current
            self._parents[current.id] = parent
            stack += [(inner, current) for inner in reversed(current.nested)]
        for current in reversed(self._maps.values()):
            own = sum(self._descendants[inner.id] + 1 for inner in current.nested)
            self._descendants[current.id] = own

    def map(self, map_id: MapId) -> NestMap:
        """The map of this id; InputError if there is none."""
        if map_id not in self._maps:
            raise InputError(Problem(f"maps/{map_id}", "no such map in the nest", repr(map_id)))
        return self._maps[map_id]

    @cached_property
    def concrete_maps(self) -> tuple[NestMap, ...]:
        """ConcreteMaps: every map of the nest."""
        return tuple(self._maps.values())

    def nested_maps(self, outer: NestMap) -> tuple[NestMap, ...]:
        """NestedMaps(m): all maps inside, at any depth."""
        first = self._positions[outer.id] + 1
        return self.concrete_maps[first : first + self._descendants[outer.id]]

    def outer_maps(self, inner: NestMap) -> tuple[NestMap, ...]:
        """OuterMaps(m): all maps around, the outermost first."""
        around: list[NestMap] = []
        parent = self._parents[inner.id]
        while parent is not None:
            around.append(parent)
            parent = self._parents[parent.id]
        return tuple(reversed(around))

    def parent(self, inner: NestMap) -> NestMap | None:
        """The map directly around, or None for a root."""
        return self._parents[inner.id]

    @cached_property
    def nesting_chains(self) -> tuple[Chain, ...]:
        """MapNestingChains: the maps around each write, from a root inwards.

        One chain for each map with nothing nested, and one that ends at each map in whose
        body something is written beside the nested maps.
        """
        return tuple(
            (*self.outer_maps(current), current)
            for current in self.concrete_maps
            if current.leaf_writes or not current.nested
        )

    def perfectly_nested_in(self, inner: NestMap, outer: NestMap) -> bool:
        """m1.perfectlyNestedIn(m2): ``inner`` is the whole body of ``outer``."""
        parent = self._parents[inner.id]
        return parent is not None and parent.id == outer.id and inner.perfectly_nested

    @cached_property
    def uses_private(self) -> tuple[NestMap, ...]:
        """The maps that read or write private memory."""
        return tuple(m for m in self.concrete_maps if m.uses(Memory.PRIVATE))

    @cached_property
    def uses_local(self) -> tuple[NestMap, ...]:
        """The maps that read or write local memory."""
        return tuple(m for m in self.concrete_maps if m.uses(Memory.LOCAL))

    def perfect_run(self, outer: NestMap) -> tuple[NestMap, ...]:
        """The longest list of maps below ``outer``, each perfectly nested in the one before."""
        run: list[NestMap] = []
        current = outer
        while len(current.nested) == 1 and current.nested[0].perfectly_nested:
            current = current.nested[0]
            run.append(current)
        return tuple(run)
