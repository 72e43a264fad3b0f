"""Codes, tuning parameters and local sizes together: exact counts and uniform samples.

Given the tuning parameters, blocks of codes are independent (:mod:`diagram.blocks`), and what
a block demands of parameters and sizes depends on the class of its codes only. The largest
block (the main one) is solved together with all parameters, the others together with the
parameters that they speak of; counts are multiplied where these shared parameters agree.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, product
from random import Random
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    Member,
    ParameterVariable,
    Predicate,
    Variable,
    variables,
)
from mapper.constraint_rules.rule import Constraint, Provenance
from mapper.solver.bounded_solve import solve_within
from mapper.solver.diagram.blocks import Block, CodeClass, code_blocks
from mapper.solver.diagram.compile import compile_arithmetic, conjuncts
from mapper.solver.diagram.layers import Diagram, SolutionTable, ranks_below
from mapper.solver.diagram.residual import Residual
from mapper.solver.diagram.rows import all_hold
from mapper.solver.limits import Watch
from mapper.solver.model import build_model, solver_with
from mapper.solver.space import Space

Array = NDArray[Any]
Item = TypeVar("Item")
# Draws of parameters and sizes, in growing batches, before what fits is worked out exactly.
_TRIES = (1 << 10, 1 << 13, 1 << 16)
_MORE_TRIES = (1 << 16,) * 16
# Draws that show which classes are feasible, and what is decided one by one beyond them.
_POOL = 4096
_FEW_ROWS = 64
_SOURCE = Provenance("what a choice of codes leaves open", "")


@dataclass(slots=True)
class _ClassTable:
    """One class of a block with values for its parameters and sizes.

    Row ``i`` is one combination of the shared parameters it speaks of; ``counts[i]`` of the
    block's values go with it.
    """

    diagram: Diagram
    decided: int
    rows: SolutionTable
    counts: Array
    states: Array


class _Part:
    """A block with the values that belong to it."""

    def __init__(
        self,
        block: Block,
        entries: Sequence[tuple[Variable, tuple[int, ...]]],
        predicates: Sequence[Predicate],
        shared: frozenset[Variable],
        all_shared: bool,
    ) -> None:
        self.block = block
        self._entries = entries
        self._predicates = predicates
        self._shared = shared
        self._all_shared = all_shared
        self._tables: dict[Residual, _ClassTable] = {}

    @property
    def has_sizes(self) -> bool:
        """Whether local sizes belong to it."""
        return any(isinstance(variable, LocalSizeVariable) for variable, _ in self._entries)

    def table(self, code_class: CodeClass, watch: Watch) -> _ClassTable:
        """The values that go with a class, computed once."""
        found = self._tables.get(code_class.residual)
        if found is None:
            found = self._tables[code_class.residual] = self._new_table(code_class, watch)
        return found

    def _new_table(self, code_class: CodeClass, watch: Watch) -> _ClassTable:
        predicates = [*self._predicates, *code_class.residual]
        mentioned: set[Variable] = set(self._shared) if self._all_shared else set()
        for predicate in predicates:
            mentioned |= variables(predicate) & self._shared
        entries = [
            (variable, domain)
            for variable, domain in self._entries
            if variable not in self._shared or variable in mentioned
        ]
        constraints = tuple(_constraint(predicate) for predicate in predicates)
        child = Watch(watch.limits, watch.cancelled, None, watch.started)
        diagram = compile_arithmetic(Space(tuple(entries), constraints), child, mentioned)
        if not diagram.count:
            empty = np.zeros(0, np.int64)
            return _ClassTable(diagram, 0, SolutionTable((), (), 0), empty, empty)
        decided = sum(layer.variable in mentioned for layer in diagram.layers)
        rows, counts, states = diagram.prefixes(decided, child)
        return _ClassTable(diagram, decided, rows, counts, states)


class JointSpace:
    """A space with codes, in parts that are counted and drawn from on their own.

    NotBooleanError from the constructor where constraints mix codes and arithmetic in a way
    that is not taken apart.
    """

    def __init__(self, space: Space, watch: Watch | None = None) -> None:
        self.space = space
        self._watch = watch or Watch()
        self._blocks, always = code_blocks(space, self._watch)
        self._names = [variable for variable, _ in space.variables]
        self._size_diagrams: dict[Residual, Diagram] = {}
        self._feasibility: dict[Residual, bool] = {}
        self._loose = [
            predicate
            for constraint in space.constraints
            for predicate in conjuncts(constraint.predicate)
            if not any(isinstance(name, CodeVariable) for name in variables(predicate))
        ]
        self._loose += [part for predicate in always for part in conjuncts(predicate)]
        self._sizes_in_main = True
        self._parts = self._make_parts() if self._blocks else []

    def _make_parts(self) -> list[_Part]:
        """The main part first."""
        loose = self._loose
        blocks = sorted(self._blocks, key=lambda block: -len(block.classes))
        names = [_names_of(block) for block in blocks]
        sizes_of = [_sizes(found, loose) for found in names]
        shared: set[Variable] = set()
        for found, sizes in zip(names[1:], sizes_of[1:], strict=True):
            shared |= {name for name in found if isinstance(name, ParameterVariable)}
            for predicate in loose:
                if not sizes.isdisjoint(variables(predicate)):
                    shared |= {v for v in variables(predicate) if isinstance(v, ParameterVariable)}
        others = frozenset[Variable]().union(*sizes_of[1:])
        self._sizes_in_main = not others
        self._shared = tuple(v for v, _ in self.space.variables if v in shared)
        entries = [e for e in self.space.variables if not isinstance(e[0], CodeVariable)]
        parts: list[_Part] = []
        for place, (block, sizes) in enumerate(zip(blocks, sizes_of, strict=True)):
            if place == 0:
                own = [entry for entry in entries if entry[0] not in others]
                inside = [p for p in loose if others.isdisjoint(variables(p))]
            else:
                own = [e for e in entries if e[0] in sizes or e[0] in shared]
                inside = [p for p in loose if not sizes.isdisjoint(variables(p))]
            parts.append(_Part(block, own, inside, frozenset(shared), place == 0))
        return parts

    # Counting

    @property
    def relaxed_mappings(self) -> int:
        """The number of code choices before parameters and sizes are asked for."""
        if not self._parts:
            return 0
        total = 1
        for block in self._blocks:
            total *= sum(code_class.paths for code_class in block.classes)
        return total

    def count_joint(self) -> int:
        """The number of assignments of codes, parameters and sizes, exact."""
        if not self._parts:
            return 0
        return sum(
            code_class.paths * int(self._main_weights(code_class).sum())
            for code_class in self._ticking(self._parts[0].block.classes)
        )

    def count_mappings(self) -> int:
        """The number of code choices with which some parameters and sizes go, exact.

        If it is cut short, :attr:`counted` is a lower bound.
        """
        self.counted = 0
        if not self._parts:
            return 0
        # Which combinations of the shared parameters the other parts allow, and for how many
        # of their choices.
        others: dict[int, int] = {-1: 1}
        for part in self._parts[1:]:
            sets: dict[int, int] = {}
            for code_class in part.block.classes:
                feasible = _as_bits(self._on_universe(part, code_class) > 0)
                sets[feasible] = sets.get(feasible, 0) + code_class.paths
            joined: dict[int, int] = {}
            for left, count in others.items():
                for right, paths in sets.items():
                    if left & right:
                        joined[left & right] = joined.get(left & right, 0) + count * paths
            others = joined
        for code_class in self._ticking(self._parts[0].block.classes):
            feasible = _as_bits(self._main_feasible(code_class))
            ways = sum(count for other, count in others.items() if other & feasible)
            self.counted += code_class.paths * ways
        return self.counted

    counted = 0

    def _main_feasible(self, code_class: CodeClass) -> Array:
        """For each combination of the shared parameters whether some values go with a class of
        the main part. A few draws show most; for the rest CP-SAT decides."""
        main, rows = self._parts[0], self._universe.rows
        if not self._sizes_in_main or rows > _FEW_ROWS:
            return self._on_universe(main, code_class) > 0
        sizes, demands = self._sizes_of([code_class])
        found = np.zeros(rows, np.bool_)
        if not sizes.count or not rows:
            return found
        pool = self._pool
        columns = dict(zip(pool.variables, pool.columns, strict=True))
        random = Random(code_class.paths)
        table = sizes.at_ranks(ranks_below(sizes.count, pool.rows, random))
        columns |= dict(zip(table.variables, table.columns, strict=True))
        fitting = all_hold(demands, self.space.domains, columns, pool.rows)
        found[np.unique(self._pool_rows[fitting])] = True
        for row in np.flatnonzero(~found):
            given = self._universe.assignment(int(row)).items()
            pins = [Member(name, frozenset({value})) for name, value in given]
            found[row] = self._is_feasible([code_class], pins)
        return found

    @cached_property
    def _pool(self) -> SolutionTable:
        """Some choices of the parameters, to try classes with."""
        return self._parameters.at_ranks(ranks_below(self._parameters.count, _POOL, Random(_POOL)))

    @cached_property
    def _pool_rows(self) -> Array:
        """For each choice of the pool its combination of the shared parameters."""
        theirs = _keys(self._universe, self._shared, self.space)
        order = np.argsort(theirs)
        ours = _keys(self._pool, self._shared, self.space)
        return order[np.searchsorted(theirs[order], ours)]

    def mappings(self) -> Iterator[dict[Variable, int]]:
        """Every choice of codes with which some parameters and sizes go, each once."""
        if not self._parts:
            return
        everything: Array = np.ones(self._universe.rows, np.bool_)
        for chosen in self._feasible([], everything):
            lists = [
                part.block.all_of(code_class)
                for part, code_class in zip(self._parts, chosen, strict=True)
            ]
            for choice in product(*lists):
                codes: dict[Variable, int] = {}
                for part_codes in choice:
                    codes |= part_codes
                yield {name: codes[name] for name in self._names if name in codes}

    def _feasible(self, chosen: list[CodeClass], allowed: Array) -> Iterator[tuple[CodeClass, ...]]:
        """Classes of all parts that go together, given those of the first parts."""
        if len(chosen) == len(self._parts):
            yield tuple(chosen)
            return
        part = self._parts[len(chosen)]
        for code_class in part.block.classes:
            self._watch.tick()
            both = allowed & (self._on_universe(part, code_class) > 0)
            if both.any():
                yield from self._feasible([*chosen, code_class], both)

    def _ticking(self, classes: Sequence[CodeClass]) -> Iterator[CodeClass]:
        for done, code_class in enumerate(classes):
            self._watch.tick(done / len(classes))
            yield code_class

    @property
    def _parameter_space(self) -> Space:
        entries = [e for e in self.space.variables if isinstance(e[0], ParameterVariable)]
        names = {variable for variable, _ in entries}
        inside = [_constraint(p) for p in self._loose if variables(p) <= names]
        return Space(tuple(entries), tuple(inside))

    @cached_property
    def _universe(self) -> SolutionTable:
        """Every combination of the shared parameters that the parameters' own rules allow."""
        space = self._parameter_space
        if not space.variables:
            return SolutionTable((), (), 1)
        diagram = compile_arithmetic(space, self._watch, self._shared)
        if not diagram.count:
            return SolutionTable((), (), 0)
        decided = sum(layer.variable in self._shared for layer in diagram.layers)
        return diagram.prefixes(decided, self._watch)[0]

    def _on_universe(self, part: _Part, code_class: CodeClass) -> Array:
        """The counts of a class for each combination of the shared parameters."""
        places, table = self._places(part, code_class)
        if not len(table.counts):
            return np.zeros(self._universe.rows, np.int64)
        return np.where(places >= 0, table.counts[places], 0)

    def _places(self, part: _Part, code_class: CodeClass) -> tuple[Array, _ClassTable]:
        """For each combination of the shared parameters its row in a class, or -1."""
        table = part.table(code_class, self._watch)
        universe = self._universe
        named = [name for name in table.rows.variables if name in self._shared]
        if not len(table.counts):
            return np.full(universe.rows, -1), table
        ours = _keys(universe, named, self.space)
        theirs = _keys(table.rows, named, self.space)
        order = np.argsort(theirs)
        found = np.searchsorted(theirs[order], ours).clip(max=len(order) - 1)
        places = order[found]
        return np.where(theirs[places] == ours, places, -1), table

    @cached_property
    def _other_weights(self) -> Array:
        """For each combination of the shared parameters, the choices of all other parts."""
        total: Array = np.ones(self._universe.rows, object)
        for part in self._parts[1:]:
            own: Array = np.zeros(self._universe.rows, object)
            for code_class in part.block.classes:
                own = own + code_class.paths * self._on_universe(part, code_class).astype(object)
            total = total * own
        return total

    def _main_weights(self, code_class: CodeClass) -> Array:
        """For each combination of the shared parameters, what goes with a class of the main part:
        its own values and the choices of all other parts."""
        return self._on_universe(self._parts[0], code_class).astype(object) * self._other_weights

    # Drawing

    @cached_property
    def _parameters(self) -> Diagram:
        """All choices of the tuning parameters that their own rules allow."""
        return compile_arithmetic(self._parameter_space, self._watch)

    def _sizes_of(self, chosen: Sequence[CodeClass]) -> tuple[Diagram, list[Predicate]]:
        """Local sizes that satisfy what speaks of them alone, and all that is left to check."""
        entries = [e for e in self.space.variables if isinstance(e[0], LocalSizeVariable)]
        names = {variable for variable, _ in entries}
        demands = [p for code_class in chosen for p in code_class.residual]
        demands += [p for p in self._loose if not names.isdisjoint(variables(p))]
        alone = tuple(p for p in demands if variables(p) <= names)
        diagram = self._size_diagrams.get(alone)
        if diagram is None:
            constraints = tuple(map(_constraint, alone))
            diagram = compile_arithmetic(Space(tuple(entries), constraints), self._watch)
            self._size_diagrams[alone] = diagram
        return diagram, [p for p in demands if not variables(p) <= names]

    def _propose(
        self, chosen: Sequence[CodeClass], random: Random, batches: Sequence[int]
    ) -> dict[Variable, int] | None:
        """Parameters and sizes that go with classes, drawn and refused until some fit.

        Exact where it answers: whatever fits is equally likely. None after many tries.
        """
        parameters = self._parameters
        sizes, demands = self._sizes_of(chosen)
        if not parameters.count or not sizes.count:
            return None
        for tries in batches:
            self._watch.tick()
            tables = [
                diagram.at_ranks(ranks_below(diagram.count, tries, random))
                for diagram in (parameters, sizes)
            ]
            columns = {
                name: column
                for table in tables
                for name, column in zip(table.variables, table.columns, strict=True)
            }
            fitting = np.flatnonzero(all_hold(demands, self.space.domains, columns, tries))
            if len(fitting):
                row = int(fitting[0])
                return {name: int(column[row]) for name, column in columns.items()}
        return None

    @cached_property
    def _promising(self) -> list[list[CodeClass]]:
        """Of each part the classes that may be feasible: others are left out where it is cheap
        to know, where a part has no sizes."""
        found: list[list[CodeClass]] = []
        for place, part in enumerate(self._parts):
            classes = list(part.block.classes)
            if place and not part.has_sizes:
                classes = [c for c in classes if self._on_universe(part, c).any()]
            found.append(classes)
        return found

    def _is_feasible(self, chosen: Sequence[CodeClass], also: Sequence[Predicate] = ()) -> bool:
        """Whether any parameters and sizes go with classes, as CP-SAT finds it."""
        residual = (*(p for code_class in chosen for p in code_class.residual), *also)
        known = self._feasibility.get(residual)
        if known is None:
            entries = [e for e in self.space.variables if not isinstance(e[0], CodeVariable)]
            demands = [*self._loose, *residual]
            space = Space(tuple(entries), tuple(map(_constraint, demands)))
            solver = solver_with()
            status = solve_within(self._watch, solver, build_model(space).cp)
            self._watch.tick()
            known = status != cp_model.INFEASIBLE
            self._feasibility[residual] = known
        return known

    def draw_mapping(self, random: Random) -> dict[Variable, int] | None:
        """A mapping and values, or None.

        Every valid mapping is equally likely among those that are not None; its values are
        uniform among those that go with it.
        """
        if not self._parts:
            return None
        chosen: list[CodeClass] = []
        for classes in self._promising:
            if not classes:
                return None
            chosen.append(_weighted(classes, [c.paths for c in classes], random))
        if self._sizes_in_main:
            values = self._propose(chosen, random, _TRIES)
            if values is None:
                if not self._is_feasible(chosen):
                    return None
                values = self._propose(chosen, random, _MORE_TRIES)
            if values is not None:
                codes = self._codes(chosen, random)
                return {name: codes.get(name, values.get(name, 0)) for name in self._names}
        weights: Array = np.ones(self._universe.rows, object)
        for part, code_class in zip(self._parts, chosen, strict=True):
            weights = weights * self._on_universe(part, code_class).astype(object)
        if not weights.any():
            return None
        row = _weighted(range(len(weights)), weights.tolist(), random)
        return self._assignment(chosen, row, random)

    @cached_property
    def _joint_sums(self) -> list[int]:
        classes = self._parts[0].block.classes
        return list(
            accumulate(c.paths * int(self._main_weights(c).sum()) for c in self._ticking(classes))
        )

    def draw_joint(self, random: Random) -> dict[Variable, int] | None:
        """An assignment, each equally likely; None if there is none. Counts all at first."""
        if not self._parts or not self._joint_sums[-1]:
            return None
        main, *others = self._parts
        chosen = [_cumulated(main.block.classes, self._joint_sums, random)]
        row = _weighted(range(self._universe.rows), self._main_weights(chosen[0]).tolist(), random)
        for part in others:
            weights = [
                code_class.paths * int(self._on_universe(part, code_class)[row])
                for code_class in part.block.classes
            ]
            chosen.append(_weighted(part.block.classes, weights, random))
        return self._assignment(chosen, row, random)

    def _assignment(
        self, chosen: Sequence[CodeClass], row: int, random: Random
    ) -> dict[Variable, int]:
        """Codes of the classes and values that go with them, where the shared ones are given."""
        found = self._codes(chosen, random)
        for part, code_class in zip(self._parts, chosen, strict=True):
            places, table = self._places(part, code_class)
            place = int(places[row])
            found |= table.rows.assignment(place)
            state = table.states[place : place + 1]
            rank = random.randrange(int(table.counts[place]))
            later = table.diagram.completions(table.decided, state, [rank])
            found |= {name: int(column[0]) for name, column in later.items()}
            found |= table.diagram.fixed
        return {name: found[name] for name in self._names}

    def _codes(self, chosen: Sequence[CodeClass], random: Random) -> dict[Variable, int]:
        return {
            name: int(column[0])
            for part, code_class in zip(self._parts, chosen, strict=True)
            for name, column in part.block.draw(code_class, 1, random).items()
        }


def _constraint(predicate: Predicate) -> Constraint:
    return Constraint("residual", "residual", (), predicate, _SOURCE, None, "", "")


def _names_of(block: Block) -> frozenset[Variable]:
    """What a block speaks of besides its codes."""
    names: set[Variable] = set()
    for code_class in block.classes:
        for predicate in code_class.residual:
            names |= variables(predicate)
    return frozenset(names)


def _sizes(names: frozenset[Variable], loose: Sequence[Predicate]) -> frozenset[Variable]:
    """The local sizes of a block, with those that constraints tie to them."""
    found = {name for name in names if isinstance(name, LocalSizeVariable)}
    growing = bool(found)
    while growing:
        growing = False
        for predicate in loose:
            tied = {v for v in variables(predicate) if isinstance(v, LocalSizeVariable)}
            if tied & found and not tied <= found:
                found |= tied
                growing = True
    return frozenset(found)


def _keys(table: SolutionTable, names: Sequence[Variable], space: Space) -> Array:
    """One integer for each row, equal where the named columns are."""
    domains = space.domains
    key: Array = np.zeros(table.rows, np.int64)
    for name in names:
        domain = np.array(domains[name])
        column = table.columns[table.variables.index(name)]
        key = key * len(domain) + np.searchsorted(domain, column)
    return key


def _as_bits(truths: Array) -> int:
    return int.from_bytes(np.packbits(truths).tobytes(), "big")


def _weighted(items: Sequence[Item], weights: Sequence[int], random: Random) -> Item:
    """One item, drawn with probability proportional to its weight, exactly."""
    return _cumulated(items, list(accumulate(weights)), random)


def _cumulated(items: Sequence[Item], sums: Sequence[int], random: Random) -> Item:
    rank = random.randrange(sums[-1])
    return items[bisect_right(sums, rank)]
