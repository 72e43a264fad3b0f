"""A space as a CP-SAT model, and its answers as assignments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ortools.sat.python import cp_model

from mapper.constraint_rules.evaluation import bind
from mapper.constraint_rules.predicate import Assignment, Variable
from mapper.errors import InputError, Problem
from mapper.solver.lowering import Lowering
from mapper.solver.space import Space

NO_PINS: Mapping[Variable, int] = {}


# How a variable's value is read: from the Boolean that is true, from an integer, or from the pins.
Reader = tuple[Variable, tuple[tuple[int, cp_model.IntVar], ...], cp_model.IntVar | None]


@dataclass(frozen=True, slots=True)
class Model:
    """A CP-SAT model of a space in which some variables are pinned."""

    lowering: Lowering
    space: Space
    pins: Mapping[Variable, int]
    readers: tuple[Reader, ...]

    @property
    def cp(self) -> cp_model.CpModel:
        """OR-Tools' own model."""
        return self.lowering.cp.model

    def read(
        self,
        value: Callable[[cp_model.IntVar], int],
    ) -> dict[Variable, int]:
        """The assignment that a solver's values stand for, pins included."""
        found: dict[Variable, int] = {}
        for variable, booleans, number in self.readers:
            if booleans:
                found[variable] = next(v for v, boolean in booleans if value(boolean))
            elif number is None:
                found[variable] = self.pins[variable]
            else:
                found[variable] = value(number)
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
    return Model(lowering, space, fixed, tuple(_readers(space, lowering, fixed)))


def _readers(space: Space, lowering: Lowering, pins: Assignment) -> Iterator[Reader]:
    cp = lowering.cp
    for variable, _ in space.variables:
        literals = None if variable in pins else lowering.value_literals(variable)
        integer = None if variable in pins else lowering.integer_of(variable)
        if literals is not None:
            yield variable, tuple((v, cp.variable(b)) for v, b in literals.items()), None
        else:
            yield variable, (), None if integer is None else cp.variable(integer)


def solver_with(*, seed: int = 0, time_limit_s: float | None = None) -> cp_model.CpSolver:
    """A solver with one worker, so that it is complete and reproducible."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    if time_limit_s is not None:
        solver.parameters.max_time_in_seconds = time_limit_s
    return solver
