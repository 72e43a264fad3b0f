"""Parameters and local sizes that go with classes of codes, drawn and refused until some fit.

Exact where it answers, and it needs no count; CP-SAT says whether any fit where none do.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    Member,
    Predicate,
    Variable,
    variables,
)
from mapper.solver.bounded_solve import solve_within
from mapper.solver.diagram.blocks import CodeClass
from mapper.solver.diagram.compile import compile_arithmetic
from mapper.solver.diagram.layers import Diagram, SolutionTable, ranks_below
from mapper.solver.diagram.residual import Residual
from mapper.solver.diagram.rows import all_hold
from mapper.solver.limits import Watch
from mapper.solver.model import build_model, solver_with
from mapper.solver.parameter_table import Parameters, as_constraint
from mapper.solver.space import Space

Array = NDArray[Any]
# Draws that show which classes are feasible.
_POOL = 4096


class Proposals:
    """Draws for the whole space; ``loose`` is what holds whatever the codes are."""

    def __init__(
        self, space: Space, loose: Sequence[Predicate], parameters: Parameters, watch: Watch
    ) -> None:
        self._space = space
        self._loose = loose
        self._parameters = parameters
        self._watch = watch
        self._size_diagrams: dict[Residual, Diagram] = {}
        self._feasibility: dict[Residual, bool] = {}

    def draw(
        self, chosen: Sequence[CodeClass], random: Random, batches: Sequence[int]
    ) -> dict[Variable, int] | None:
        """Parameters and sizes that go with classes: whatever fits is equally likely.

        None after as many tries as the batches have together.
        """
        parameters = self._parameters.diagram
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
            fitting = np.flatnonzero(all_hold(demands, self._space.domains, columns, tries))
            if len(fitting):
                row = int(fitting[0])
                return {name: int(column[row]) for name, column in columns.items()}
        return None

    def is_feasible(self, chosen: Sequence[CodeClass], also: Sequence[Predicate] = ()) -> bool:
        """Whether any parameters and sizes go with classes, as CP-SAT finds it."""
        residual = (*(p for code_class in chosen for p in code_class.residual), *also)
        known = self._feasibility.get(residual)
        if known is None:
            entries = [e for e in self._space.variables if not isinstance(e[0], CodeVariable)]
            demands = [*self._loose, *residual]
            space = Space(tuple(entries), tuple(map(as_constraint, demands)))
            solver = solver_with()
            status = solve_within(self._watch, solver, build_model(space).cp)
            self._watch.tick()
            known = status != cp_model.INFEASIBLE
            self._feasibility[residual] = known
        return known

    def feasible_rows(self, code_class: CodeClass) -> Array:
        """For each row of the universe whether some values go with a class of the part that
        has all sizes. A few draws show most; for the rest CP-SAT decides."""
        universe = self._parameters.universe
        found = np.zeros(universe.rows, np.bool_)
        sizes, demands = self._sizes_of([code_class])
        if not sizes.count or not universe.rows:
            return found
        pool = self._pool
        columns = dict(zip(pool.variables, pool.columns, strict=True))
        random = Random(code_class.paths)
        table = sizes.at_ranks(ranks_below(sizes.count, pool.rows, random))
        columns |= dict(zip(table.variables, table.columns, strict=True))
        fitting = all_hold(demands, self._space.domains, columns, pool.rows)
        found[np.unique(self._pool_rows[fitting])] = True
        for row in np.flatnonzero(~found):
            given = universe.assignment(int(row)).items()
            pins = [Member(name, frozenset({value})) for name, value in given]
            found[row] = self.is_feasible([code_class], pins)
        return found

    @cached_property
    def _pool(self) -> SolutionTable:
        """Some choices of the parameters, to try classes with."""
        diagram = self._parameters.diagram
        return diagram.at_ranks(ranks_below(diagram.count, _POOL, Random(_POOL)))

    @cached_property
    def _pool_rows(self) -> Array:
        """For each choice of the pool its row in the universe."""
        return self._parameters.universe_rows(self._pool)

    def _sizes_of(self, chosen: Sequence[CodeClass]) -> tuple[Diagram, list[Predicate]]:
        """Local sizes that satisfy what speaks of them alone, and all that is left to check."""
        entries = [e for e in self._space.variables if isinstance(e[0], LocalSizeVariable)]
        names = {variable for variable, _ in entries}
        demands = [p for code_class in chosen for p in code_class.residual]
        demands += [p for p in self._loose if not names.isdisjoint(variables(p))]
        alone = tuple(p for p in demands if variables(p) <= names)
        diagram = self._size_diagrams.get(alone)
        if diagram is None:
            constraints = tuple(map(as_constraint, alone))
            diagram = compile_arithmetic(Space(tuple(entries), constraints), self._watch)
            self._size_diagrams[alone] = diagram
        return diagram, [p for p in demands if not variables(p) <= names]
