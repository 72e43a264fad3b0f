"""How many mappings a space has.

A mapping is an assignment of codes; tuning parameters and local sizes only have to exist. So
codes are enumerated under the constraints that speak of codes alone, and what is left of the
others decides, once for each different remainder, whether values exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ortools.sat.python import cp_model

from mapper.constraint_rules.evaluation import bind
from mapper.constraint_rules.predicate import (
    TRUE,
    Assignment,
    CodeVariable,
    Predicate,
    Variable,
    variables,
)
from mapper.solver.enumeration import enumerate_assignments
from mapper.solver.model import NO_PINS, build_model, checked_pins, solver_with
from mapper.solver.space import Space


@dataclass(frozen=True, slots=True)
class Count:
    """A number of mappings; a lower bound if not complete."""

    mappings: int
    complete: bool


class _Counter(cp_model.CpSolverSolutionCallback):
    """Counts only: full reification gives each assignment exactly one solution."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def on_solution_callback(self) -> None:
        """One solution was found."""
        self.count += 1


def count_mappings(
    space: Space, pins: Assignment = NO_PINS, *, time_limit_s: float | None = None
) -> Count:
    """The number of code assignments that agree with the pins and can be completed."""
    fixed = checked_pins(space, pins)
    open_variables = {variable for variable, _ in space.variables if variable not in fixed}
    if all(isinstance(variable, CodeVariable) for variable in open_variables):
        return _count_solutions(space, fixed, time_limit_s)
    return _count_completable(space, fixed, time_limit_s)


def _count_solutions(space: Space, pins: Assignment, time_limit_s: float | None) -> Count:
    model = build_model(space, pins)
    solver = solver_with(time_limit_s=time_limit_s)
    solver.parameters.enumerate_all_solutions = True
    solver.parameters.cp_model_presolve = False
    counter = _Counter()
    status = solver.solve(model.cp, counter)
    return Count(counter.count, status in (cp_model.OPTIMAL, cp_model.INFEASIBLE))


def _count_completable(space: Space, pins: Assignment, time_limit_s: float | None) -> Count:
    mappings = Mappings(space, pins, time_limit_s=time_limit_s)
    return Count(sum(1 for _ in mappings), mappings.complete)


class Mappings(Iterable[dict[Variable, int]]):
    """Every code assignment for which parameters and local sizes exist, each once.

    Iterate it once; ``complete`` then says whether all were given. Where a caller stops
    early it stays False.
    """

    def __init__(
        self, space: Space, pins: Assignment = NO_PINS, *, time_limit_s: float | None = None
    ) -> None:
        self.complete = False
        self._space = space
        self._pins = checked_pins(space, pins)
        self._time_limit_s = time_limit_s

    def __iter__(self) -> Iterator[dict[Variable, int]]:
        space, pins = self._space, self._pins
        codes = tuple(entry for entry in space.variables if isinstance(entry[0], CodeVariable))
        others = tuple(e for e in space.variables if not isinstance(e[0], CodeVariable))
        code_variables = {variable for variable, _ in codes}
        # Bound: what a pin makes irrelevant has no variable in the relaxed space.
        code_only = tuple(
            bound
            for bound in (replace(c, predicate=bind(c.predicate, pins)) for c in space.constraints)
            if variables(bound.predicate) <= code_variables
        )
        code_only_ids = {constraint.id for constraint in code_only}
        mixed = tuple(
            bind(constraint.predicate, pins)
            for constraint in space.constraints
            if constraint.id not in code_only_ids
        )
        code_pins = {v: value for v, value in pins.items() if v in code_variables}
        other_pins = {v: value for v, value in pins.items() if v not in code_variables}
        # Constraints may mention pinned parameters, so these stay in the relaxed space.
        relaxed = Space(
            (*codes, *((variable, (value,)) for variable, value in other_pins.items())), code_only
        )
        known: dict[frozenset[Predicate], bool] = {}
        left_s = self._time_limit_s
        with enumerate_assignments(
            relaxed, {**code_pins, **other_pins}, time_limit_s=self._time_limit_s
        ) as found:
            for assignment in found:
                left = frozenset(bind(predicate, assignment) for predicate in mixed) - {TRUE}
                if left not in known:
                    exists, spent_s = _exists(others, other_pins, left, left_s)
                    left_s = None if left_s is None else left_s - spent_s
                    if exists is None:
                        return
                    known[left] = exists
                if known[left]:
                    yield {v: assignment[v] for v, _ in codes}
        self.complete = found.complete is True


def _exists(
    entries: tuple[tuple[Variable, tuple[int, ...]], ...],
    pins: Assignment,
    predicates: frozenset[Predicate],
    time_limit_s: float | None,
) -> tuple[bool | None, float]:
    """Whether values of the rest exist, None if time ran out first; and the seconds it took."""
    if time_limit_s is not None and time_limit_s <= 0:
        return None, 0.0
    model = build_model(Space(entries, ()), pins)
    for predicate in sorted(predicates, key=str):
        model.lowering.add(bind(predicate, pins))
    solver = solver_with(time_limit_s=time_limit_s)
    status = solver.solve(model.cp)
    if status == cp_model.UNKNOWN:
        return None, solver.wall_time
    return status in (cp_model.OPTIMAL, cp_model.FEASIBLE), solver.wall_time
