"""A space as a CP-SAT model, and its answers as assignments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ortools.sat.python import cp_model

from mapper.constraint_rules.predicate import Assignment, Predicate, Variable, variables
from mapper.constraint_rules.rewriting import bind
from mapper.errors import InputError, Problem
from mapper.solver.factored.narrowing import is_suited, without_forbidden
from mapper.solver.lowering import Lowering
from mapper.solver.space import NO_PINS, Space

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


def _unwatched() -> None:
    """Nobody asks whether building a model goes on."""


class ModelTemplate:
    """A space of which some variables will be pinned, to other values for each model.

    What does not speak of these variables is lowered once. A variable with one value counts
    as pinned. ``watch`` is called between constraints: lowering a large space takes seconds.
    """

    def __init__(
        self,
        space: Space,
        pins: Assignment,
        later: Iterable[Variable],
        watch: Callable[[], None] = _unwatched,
    ) -> None:
        self._space = space
        single = {variable: domain[0] for variable, domain in space.variables if len(domain) == 1}
        self._pins = single | checked_pins(space, pins)
        self._later = frozenset(later) - self._pins.keys()
        known = self._later | self._pins.keys()
        self._base = Lowering(
            {variable: domain for variable, domain in space.variables if variable not in known}
        )
        self._open: list[Predicate] = []
        for constraint in space.constraints:
            watch()
            predicate = bind(constraint.predicate, self._pins)
            if variables(predicate).isdisjoint(self._later):
                self._base.add(predicate)
            else:
                self._open.append(predicate)

    def model(self, values: Assignment = NO_PINS) -> Model:
        """The model with these values pinned too; what has no value stays open."""
        pins = {**self._pins, **checked_pins(self._space, values)}
        lowering = self._base.clone(
            {
                variable: domain
                for variable, domain in self._space.variables
                if variable in self._later and variable not in pins
            }
        )
        for predicate in self._open:
            lowering.add(bind(predicate, values))
        return Model(lowering, self._space, pins, tuple(_readers(self._space, lowering, pins)))


def build_model(
    space: Space, pins: Assignment = NO_PINS, *, watch: Callable[[], None] = _unwatched
) -> Model:
    """The model of all assignments that agree with the pins.

    Pinned variables are replaced by their values before anything is lowered, so that most
    arithmetic over tuning parameters never reaches the solver. Of a space with rules of
    suitability the solver is given what these leave. What ``watch`` raises ends it.
    """
    if is_suited(space):
        fixed = checked_pins(space, pins)
        entries = ((v, (fixed[v],) if v in fixed else domain) for v, domain in space.variables)
        space = without_forbidden(Space(tuple(entries), space.constraints), watch)
        pins = NO_PINS
    return ModelTemplate(space, pins, (), watch).model()


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
    # The solver's own handler would leave SIGINT deadly after a solve, and off the main thread
    # it aborts the process: interrupts belong to whoever called.
    solver.parameters.catch_sigint_signal = False
    if time_limit_s is not None:
        solver.parameters.max_time_in_seconds = time_limit_s
    return solver
