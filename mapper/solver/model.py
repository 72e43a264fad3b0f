"""A space as a CP-SAT model, and its answers as assignments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ortools.sat.python import cp_model

from mapper.constraint_rules.evaluation import bind
from mapper.constraint_rules.predicate import Assignment, Variable
from mapper.errors import InputError, Problem
from mapper.solver.lowering import Lowering
from mapper.solver.space import Space

NO_PINS: Mapping[Variable, int] = {}


@dataclass(frozen=True, slots=True)
class Model:
    """A CP-SAT model of a space in which some variables are pinned."""

    lowering: Lowering
    space: Space
    pins: Mapping[Variable, int]

    @property
    def cp(self) -> cp_model.CpModel:
        """OR-Tools' own model."""
        return self.lowering.cp.model

    def read(
        self,
        value: Callable[[cp_model.IntVar], int],
    ) -> dict[Variable, int]:
        """The assignment that a solver's values stand for, pins included."""
        cp = self.lowering.cp
        found: dict[Variable, int] = {}
        for variable, _ in self.space.variables:
            if variable in self.pins:
                found[variable] = self.pins[variable]
                continue
            literals = self.lowering.value_literals(variable)
            if literals is None:
                number = self.lowering.integer_of(variable)
                assert number is not None
                found[variable] = value(cp.variable(number))
            else:
                found[variable] = next(v for v, b in literals.items() if value(cp.variable(b)))
        return found


def checked_pins(space: Space, pins: Assignment) -> dict[Variable, int]:
    """The pins as a dict; InputError names unknown variables and values outside a domain."""
    domains = space.domains
    problems: list[Problem] = []
    for variable, value in pins.items():
        if variable not in domains:
            problems.append(Problem(str(variable), "no such variable to pin", str(value)))
        elif value not in domains[variable]:
            allowed = ", ".join(str(known) for known in domains[variable])
            problems.append(
                Problem(str(variable), "the pinned value is not allowed", str(value), allowed)
            )
    if problems:
        raise InputError(problems)
    return dict(pins)


def build_model(space: Space, pins: Assignment = NO_PINS) -> Model:
    """The model of all assignments that agree with the pins.

    Pinned variables are replaced by their values before anything is lowered, so that most
    arithmetic over tuning parameters never reaches the solver.
    """
    fixed = checked_pins(space, pins)
    lowering = Lowering(
        {variable: domain for variable, domain in space.variables if variable not in fixed}
    )
    for constraint in space.constraints:
        lowering.add(bind(constraint.predicate, fixed))
    return Model(lowering, space, fixed)


def solver_with(*, seed: int = 0, time_limit_s: float | None = None) -> cp_model.CpSolver:
    """A solver with one worker, so that it is complete and reproducible."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    if time_limit_s is not None:
        solver.parameters.max_time_in_seconds = time_limit_s
    return solver
