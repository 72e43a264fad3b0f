"""The valid assignment that differs least from a given one.

Least is counted lexicographically: the fewest changed codes; among these the fewest changed
tuning parameters; among these the fewest changed local sizes. What is not given is free and
costs nothing. Of several nearest assignments the one is taken whose first variable, in the
order of the space, keeps its value or gets the closest one, then the second, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    Member,
    ParameterVariable,
    Variable,
)
from mapper.errors import InputError, LimitError, Problem
from mapper.schedule import PARALLEL_CODES, ScheduleCode
from mapper.solver.bounded_solve import solve_within
from mapper.solver.limits import SolveLimits, Watch
from mapper.solver.model import Model, build_model, solver_with
from mapper.solver.ordered_dive import ValueOrder, first_in_order
from mapper.solver.restrictions import UNRESTRICTED, Restrictions, narrowed
from mapper.solver.space import Domain, Space, check

_KINDS = 3
_CODES = frozenset(int(code) for code in ScheduleCode)


@dataclass(frozen=True, slots=True)
class Change:
    """A variable that has another value in the nearest assignment."""

    variable: Variable
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Nearest:
    """A valid assignment near a given one.

    ``proven`` says that none is nearer; otherwise the time was over before that was shown.
    """

    assignment: Mapping[Variable, int]
    changes: tuple[Change, ...]
    proven: bool


def distance(given: Mapping[Variable, int], assignment: Mapping[Variable, int]) -> tuple[int, ...]:
    """The numbers of changed codes, tuning parameters and local sizes, to be compared in order."""
    changed = [
        _kind(variable) for variable, value in given.items() if assignment[variable] != value
    ]
    return tuple(changed.count(kind) for kind in range(_KINDS))


def _kind(variable: Variable) -> int:
    """Which changes weigh most: 0 before 1 before 2."""
    match variable:
        case CodeVariable():
            return 0
        case ParameterVariable():
            return 1
        case LocalSizeVariable():
            return 2


def nearest(
    space: Space,
    given: Mapping[Variable, int],
    restrictions: Restrictions = UNRESTRICTED,
    *,
    time_limit_s: float | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Nearest | None:
    """The nearest valid assignment that agrees with the restrictions; None if there is none.

    ``given`` may leave variables out and may have values outside their domains. Raises
    InputError for unknown variables and restrictions that do not fit, LimitError if nothing
    was found in time, Cancelled if the caller asked to stop.
    """
    watch = Watch(SolveLimits(time_s=time_limit_s), cancelled)
    _refuse_unknown(space, given)
    model = build_model(narrowed(space, restrictions), watch=watch.tick)
    kept = _kept_literals(model, given)
    objective = model.lowering.cp.weighted(kept)
    if kept:
        model.lowering.cp.maximise(objective)
        _hint(model, given)
    solver = solver_with()
    status = solve_within(watch, solver, model.cp)
    if status == cp_model.INFEASIBLE:
        return None
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise LimitError(
            Problem(
                "",
                "no valid mapping near the given one was found in time",
                f"{time_limit_s} s",
                "",
                "--time-limit",
            )
        )
    found, proven = model.read(solver.value), status == cp_model.OPTIMAL
    if proven:
        cp = model.lowering.cp
        cp.drop_objective()
        if kept:
            cp.within(objective, cp_model.Domain(*[round(solver.objective_value)] * 2))
        found = first_in_order(model, _closest_first(given), watch) or found
    return _checked(space, given, found, proven)


def _refuse_unknown(space: Space, given: Mapping[Variable, int]) -> None:
    unknown = given.keys() - space.domains.keys()
    if unknown:
        raise InputError(
            Problem(str(variable), "there is no such variable", str(given[variable]))
            for variable in sorted(unknown, key=str)
        )


def _kept_literals(model: Model, given: Mapping[Variable, int]) -> dict[int, int]:
    """The Boolean for each given value that can be kept, with its weight."""
    open_given = [
        variable
        for variable, domain in model.space.variables
        if variable not in model.pins and given.get(variable) in domain
    ]
    weights: dict[int, int] = {}
    weight = 1
    for kind in reversed(range(_KINDS)):
        literals = [
            model.lowering.literal(Member(variable, frozenset({given[variable]})))
            for variable in open_given
            if _kind(variable) == kind
        ]
        weights |= dict.fromkeys(literals, weight)
        # One more than all lesser changes together.
        weight *= len(literals) + 1
    return weights


def _hint(model: Model, given: Mapping[Variable, int]) -> None:
    lowering = model.lowering
    for variable, domain in model.space.variables:
        if variable in model.pins or given.get(variable) not in domain:
            continue
        literals = lowering.value_literals(variable)
        integer = lowering.integer_of(variable)
        if literals is not None:
            for value, literal in literals.items():
                lowering.cp.hint(literal, int(value == given[variable]))
        elif integer is not None:
            lowering.cp.hint(integer, given[variable])


def _closest_first(given: Mapping[Variable, int]) -> ValueOrder:
    def order(variable: Variable, domain: Domain) -> Sequence[int]:
        before = given.get(variable)
        if before is None:
            return domain
        if isinstance(variable, CodeVariable):
            return sorted(domain, key=lambda value: _code_distance(before, value))
        return sorted(domain, key=lambda value: (abs(value - before), value))

    return order


def _code_distance(before: int, after: int) -> tuple[int, int, int]:
    """The same kind of schedule first, then what is as parallel or as serial, then the rest."""
    if before == after:
        return -1, 0, 0
    if before not in _CODES:
        return 2, 0, after
    old, new = ScheduleCode(before), ScheduleCode(after)
    if old.level is new.level:
        rank = 0
    else:
        rank = 1 if (old in PARALLEL_CODES) == (new in PARALLEL_CODES) else 2
    return rank, abs((old.dimension or 0) - (new.dimension or 0)), after


def _checked(
    space: Space, given: Mapping[Variable, int], found: dict[Variable, int], proven: bool
) -> Nearest:
    broken = ", ".join(violation.constraint for violation in check(space, found))
    if broken:
        raise AssertionError(f"the solver's answer breaks {broken}")
    changes = tuple(
        Change(variable, given[variable], found[variable])
        for variable, _ in space.variables
        if given.get(variable, found[variable]) != found[variable]
    )
    return Nearest(found, changes, proven)
