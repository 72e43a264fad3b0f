"""One block of codes with the parameters and local sizes that belong to it.

Where every condition on sizes speaks of one size, or of sizes alone, classes are counted over
tables of parameters that they share (:mod:`parameter_table`, :mod:`size_sets`). Any other class
is a diagram of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from mapper.constraint_rules.predicate import (
    LocalSizeVariable,
    ParameterVariable,
    Predicate,
    Variable,
    variables,
)
from mapper.solver.demands import DemandReader, Demands
from mapper.solver.diagram.blocks import Block, CodeClass
from mapper.solver.diagram.compile import compile_arithmetic
from mapper.solver.diagram.layers import Diagram, SolutionTable
from mapper.solver.diagram.residual import Residual
from mapper.solver.limits import DEFAULT_MEMORY, Watch
from mapper.solver.parameter_table import (
    Combinations,
    Parameters,
    ParameterTable,
    as_constraint,
    exact_sums,
)
from mapper.solver.size_sets import SizeCounts, SizeEntry, SizeSets, drawn
from mapper.solver.space import Domain, Space

Array = NDArray[Any]
Entry = tuple[Variable, Domain]
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
# What was computed is kept up to these parts of the allowed memory, then forgotten in the order
# of its last use.
_TABLES = 4
_COMBINATIONS = 8
_COUNTS = 16
_DIAGRAMS = 4
_LARGEST = 1 << 62
# So many choices of parameters, more if need be, mostly show that a class is feasible.
_DRAWS = (1 << 10, 1 << 14)


class _Kept(Generic[Key, Value]):
    """Values by key, the latest used ones up to a number of bytes."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._held = 0
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()

    def __contains__(self, key: Key) -> bool:
        return key in self._values

    def get(self, key: Key) -> Value:
        self._values.move_to_end(key)
        return self._values[key][0]

    def put(self, key: Key, value: Value, n_bytes: int) -> None:
        self._values[key] = value, n_bytes
        self._held += n_bytes
        while self._held > self._most and len(self._values) > 1:
            _, (_, less) = self._values.popitem(last=False)
            self._held -= less


@dataclass(slots=True)
class _ClassTable:
    """A class as a diagram of its own.

    Row ``i`` is one combination of the shared parameters it speaks of; ``counts[i]`` of the
    block's values go with it.
    """

    diagram: Diagram
    decided: int
    rows: SolutionTable
    counts: Array
    states: Array

    @property
    def n_bytes(self) -> int:
        """The memory of its arrays."""
        kept = [*self.rows.columns, self.counts, self.states]
        layers = sum(layer.n_bytes for layer in self.diagram.layers)
        return layers + sum(column.nbytes for column in kept)


class Part:
    """A block with the values that belong to it.

    ``entries`` are its local sizes and the parameters it is decided with, ``predicates`` what
    ties these. The main part is decided with all parameters, each other one with the shared.
    """

    def __init__(
        self,
        block: Block,
        entries: Sequence[Entry],
        predicates: Sequence[Predicate],
        parameters: Parameters,
        is_main: bool,
        watch: Watch,
    ) -> None:
        self.block = block
        self._entries = entries
        self._predicates = predicates
        self._parameters = parameters
        self._shared = frozenset(parameters.shared)
        self._is_main = is_main
        self._watch = watch
        self._sizes: list[SizeEntry] = [
            (name, domain) for name, domain in entries if isinstance(name, LocalSizeVariable)
        ]
        names = frozenset[Variable](name for name, _ in self._sizes)
        self._of_sizes = [p for p in predicates if not names.isdisjoint(variables(p))]
        self._reader = DemandReader([name for name, _ in self._sizes])
        self._sets = SizeSets(self._sizes)
        self._size_counts: dict[frozenset[Predicate], SizeCounts] = {}
        self._demands: dict[Residual, tuple[Demands, frozenset[Variable]] | None] = {}
        memory = watch.limits.memory_bytes or DEFAULT_MEMORY
        self._tables = _Kept[frozenset[Variable], ParameterTable | None](memory // _TABLES)
        self._combinations = _Kept[Hashable, Combinations](memory // _COMBINATIONS)
        self._counts = _Kept[Residual, Array](memory // _COUNTS)
        self._diagrams = _Kept[Residual, _ClassTable](memory // _DIAGRAMS)

    @property
    def has_sizes(self) -> bool:
        """Whether local sizes belong to it."""
        return bool(self._sizes)

    def counts(self, code_class: CodeClass) -> Array:
        """For each row of the universe, how many of the part's values go with a class.

        64-bit integers where these suffice, else Python's.
        """
        key = code_class.residual
        if key not in self._counts:
            table = self._table_of(code_class)
            if table is None:
                found = self._counts_by_diagram(code_class)
            else:
                combined, values, bound = self._weighed(code_class, table)
                rows = self._parameters.universe.rows
                found = exact_sums(combined.places, values, rows, bound)
            self._counts.put(key, found, found.nbytes)
        return self._counts.get(key)

    def all_counts(
        self, classes: Sequence[CodeClass] | None = None
    ) -> Iterator[tuple[CodeClass, Array]]:
        """Every class, or all of some, with its :meth:`counts`.

        The order is that in which the least is computed twice.
        """
        by_table: dict[frozenset[Variable] | None, list[CodeClass]] = {}
        for code_class in self.block.classes if classes is None else classes:
            self._watch.tick()
            demands = self._demands_of(code_class)
            by_table.setdefault(None if demands is None else demands[1], []).append(code_class)
        for together in by_table.values():
            # All sets of sizes first: how many combinations these have is then computed once.
            for code_class in together:
                self._watch.tick()
                table = self._table_of(code_class)
                if table is not None:
                    self._combined(code_class, table)
            for code_class in together:
                yield code_class, self.counts(code_class)

    def always_feasible(self) -> set[CodeClass]:
        """Classes of which a few draws show that some values go with them in every row of the
        universe. Others may be so, too."""
        found: set[CodeClass] = set()
        if not self._is_main:
            return found
        left = [c for c in self.block.classes if self._demands_of(c) is not None]
        for number in _DRAWS:
            table = self._parameters.some(number)
            # All sets of sizes first, as for counts.
            for code_class in left:
                self._combined(code_class, table)
            shown = {c for c in left if self._shows(c, table)}
            left = [c for c in left if c not in shown]
            found |= shown
        return found

    def _shows(self, code_class: CodeClass, table: ParameterTable) -> bool:
        self._watch.tick()
        combined, values, _ = self._weighed(code_class, table)
        return len(np.unique(combined.places[values > 0])) == self._parameters.universe.rows

    def is_tabled(self, code_class: CodeClass) -> bool:
        """Whether its counts come from tables that classes share: soon known, that is."""
        return self._table_of(code_class) is not None

    def draw(self, code_class: CodeClass, row: int, random: Random) -> dict[Variable, int]:
        """Values that go with a class in one row of the universe, each equally likely.

        There must be some.
        """
        table = self._table_of(code_class)
        if table is None:
            return self._draw_from_diagram(code_class, row, random)
        combined, values, _ = self._weighed(code_class, table)
        inside = np.flatnonzero(combined.places == row)
        place = int(inside[drawn(values[inside], random)])
        demands = self._known_demands(code_class)
        wanted = {demand: int(numbers[place]) for demand, numbers in combined.sets.items()}
        rows, ways = table.weights(demands.parameters, row, wanted, self._sets)
        chosen = drawn(ways, random)
        found = table.assignment(int(rows[chosen]), random.randrange(int(ways[chosen])))
        numbers = {
            name: wanted[demand]
            for (name, _), demand in zip(self._sizes, demands.sizes, strict=True)
        }
        return found | self._counter(demands.together).draw(numbers, random)

    # By tables that classes share

    def _demands_of(self, code_class: CodeClass) -> tuple[Demands, frozenset[Variable]] | None:
        """What a class demands, and the parameters that this speaks of."""
        residual = code_class.residual
        if residual not in self._demands:
            demands = self._reader.read(self._of_sizes, residual)
            if demands is None:
                self._demands[residual] = None
            else:
                conditions = frozenset[Predicate]().union(demands.parameters, *demands.sizes)
                names = frozenset[Variable]().union(*map(variables, conditions))
                own = frozenset[Variable](v for v in names if isinstance(v, ParameterVariable))
                self._demands[residual] = demands, own
        return self._demands[residual]

    def _known_demands(self, code_class: CodeClass) -> Demands:
        found = self._demands_of(code_class)
        assert found is not None
        return found[0]

    def _table_of(self, code_class: CodeClass) -> ParameterTable | None:
        """The parameters that a class is counted over; None where it is a diagram of its own."""
        demands = self._demands_of(code_class)
        if demands is None:
            return None
        key = demands[1] | self._shared if self._is_main else self._shared
        if key not in self._tables:
            table = self._parameters.table(key) if self._is_main else self._parameters.only_shared()
            self._tables.put(key, table, 0 if table is None else table.n_bytes)
        return self._tables.get(key)

    def _combined(self, code_class: CodeClass, table: ParameterTable) -> Combinations:
        demands = self._known_demands(code_class)
        if table.sampled:
            return table.combinations(demands.parameters, demands.sizes, self._sets)
        key = demands.parameters, frozenset(demands.sizes)
        # Classes that differ by a permutation of dimensions have this in common.
        if key not in self._combinations:
            found = table.combinations(demands.parameters, demands.sizes, self._sets)
            self._combinations.put(key, found, found.n_bytes)
        return self._combinations.get(key)

    def _weighed(
        self, code_class: CodeClass, table: ParameterTable
    ) -> tuple[Combinations, Array, int]:
        """Combinations of a class, the number of values that go with each, and a bound of
        the sum of all these."""
        demands = self._known_demands(code_class)
        combined = self._combined(code_class, table)
        counter = self._counter(demands.together)
        numbers = {
            name: combined.sets[demand]
            for (name, _), demand in zip(self._sizes, demands.sizes, strict=True)
        }
        sizes = counter.of(numbers, len(combined.places))
        bound = table.bound * counter.bound
        if bound >= _LARGEST:
            return combined, combined.ways.astype(object) * sizes.astype(object), bound
        return combined, combined.ways * sizes, bound

    def _counter(self, together: frozenset[Predicate]) -> SizeCounts:
        found = self._size_counts.get(together)
        if found is None:
            found = SizeCounts(self._sizes, together, self._sets, self._watch)
            self._size_counts[together] = found
        return found

    # By a diagram for each class

    def _diagram_of(self, code_class: CodeClass) -> _ClassTable:
        key = code_class.residual
        if key not in self._diagrams:
            found = self._new_diagram(code_class)
            self._diagrams.put(key, found, found.n_bytes)
        return self._diagrams.get(key)

    def _new_diagram(self, code_class: CodeClass) -> _ClassTable:
        predicates = [*self._predicates, *code_class.residual]
        mentioned: set[Variable] = set(self._shared) if self._is_main else set()
        for predicate in predicates:
            mentioned |= variables(predicate) & self._shared
        entries = [
            (variable, domain)
            for variable, domain in self._entries
            if variable not in self._shared or variable in mentioned
        ]
        constraints = tuple(as_constraint(predicate) for predicate in predicates)
        # Without progress: its own is not that of the whole.
        watch = replace(self._watch, progress=None)
        diagram = compile_arithmetic(Space(tuple(entries), constraints), watch, mentioned)
        if not diagram.count:
            empty = np.zeros(0, np.int64)
            return _ClassTable(diagram, 0, SolutionTable((), (), 0), empty, empty)
        decided = sum(layer.variable in mentioned for layer in diagram.layers)
        rows, counts, states = diagram.prefixes(decided, watch)
        watch.tick()
        return _ClassTable(diagram, decided, rows, counts, states)

    def _counts_by_diagram(self, code_class: CodeClass) -> Array:
        places, table = self._places(code_class)
        if not len(table.counts):
            return np.zeros(len(places), np.int64)
        return np.where(places >= 0, table.counts[places], 0)

    def _places(self, code_class: CodeClass) -> tuple[Array, _ClassTable]:
        """For each row of the universe its row in a class's table, or -1."""
        table = self._diagram_of(code_class)
        universe = self._parameters.universe
        named = [name for name in table.rows.variables if name in self._shared]
        if not len(table.counts):
            return np.full(universe.rows, -1), table
        ours = self._parameters.keys(universe, named)
        theirs = self._parameters.keys(table.rows, named)
        order = np.argsort(theirs)
        found = np.searchsorted(theirs[order], ours).clip(max=len(order) - 1)
        places = order[found]
        return np.where(theirs[places] == ours, places, -1), table

    def _draw_from_diagram(
        self, code_class: CodeClass, row: int, random: Random
    ) -> dict[Variable, int]:
        places, table = self._places(code_class)
        place = int(places[row])
        found = table.rows.assignment(place)
        state = table.states[place : place + 1]
        rank = random.randrange(int(table.counts[place]))
        later = table.diagram.completions(table.decided, state, [rank])
        found |= {name: int(column[0]) for name, column in later.items()}
        return found | table.diagram.fixed
