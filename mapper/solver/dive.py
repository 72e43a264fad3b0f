"""Diverse valid assignments by CP-SAT, for spaces whose diagrams would be too large.

``random_seed`` with ``randomize_search`` is no sampling (400 seeds gave one solution). Instead
tuning parameters are drawn by randomised backtracking over the constraints that mention nothing
else; with these pinned, the solver decides codes and local sizes by a strategy that visits them
in a random order and tries their values in a random order. What it finds is diverse, but not
uniform. One seed gives one sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random

from ortools.sat.python import cp_model

from mapper.constraint_rules.evaluation import evaluate_partial
from mapper.constraint_rules.predicate import (
    Assignment,
    Member,
    ParameterVariable,
    Predicate,
    Truth,
    Variable,
    variables,
)
from mapper.constraint_rules.rewriting import bind
from mapper.errors import LimitError, UnsatisfiableError
from mapper.solver.bounded_solve import solve_within
from mapper.solver.enumeration import enumerate_assignments
from mapper.solver.limits import Watch
from mapper.solver.model import (
    Model,
    ModelTemplate,
    build_model,
    checked_pins,
    solver_with,
)
from mapper.solver.space import NO_PINS, Space, check

# Draws in a row that gave nothing new before the rest is enumerated instead.
PATIENCE = 20
# A draw that chose badly early on would search long; a fresh order is soon luckier.
_DRAW_NODES = 400
_DRAW_RESTARTS = 60
_TARGETS = 6
_SOLVE_LIMIT_S = 20.0


def complete(
    space: Space,
    pins: Assignment = NO_PINS,
    *,
    watch: Watch | None = None,
    effort: float | None = None,
) -> dict[Variable, int]:
    """One valid assignment that agrees with the pins; UnsatisfiableError if there is none.

    LimitError past the limits of ``watch``, Cancelled where it says so. ``effort`` bounds the
    solver's work in its deterministic time, about seconds: LimitError beyond it on every machine
    alike.
    """
    watch = watch or Watch()
    found = _solve(build_model(space, pins, watch=watch.tick), Random(0), watch, None, effort)
    if found is None:
        raise UnsatisfiableError("no valid assignment agrees with what is fixed")
    return _checked(space, found)


def diverse(
    space: Space,
    count: int,
    seed: int,
    pins: Assignment = NO_PINS,
    *,
    watch: Watch | None = None,
) -> Iterator[dict[Variable, int]]:
    """Up to ``count`` distinct valid assignments, fewer only if there are no more.

    UnsatisfiableError if there is none at all; LimitError past the limits of ``watch``,
    Cancelled where it says so.
    """
    watch = watch or Watch()
    fixed = checked_pins(space, pins)
    random = Random(seed)
    seen: set[tuple[int, ...]] = set()
    failures = 0
    draw = ParameterDraw(space, fixed)
    template = ModelTemplate(space, fixed, draw.open, watch.tick)
    while len(seen) < count and failures < PATIENCE:
        # Where what the codes need (memory, say) refuses most parameters, drawing these blindly
        # gives nothing: every fourth failure the solver chooses them too.
        values = None if failures % 4 == 3 else draw.draw(random, watch)
        found = _solve(template.model(values or NO_PINS), random, watch, _SOLVE_LIMIT_S)
        key = tuple(found.values()) if found is not None else None
        if found is None or key is None or key in seen:
            failures += 1
            continue
        failures = 0
        seen.add(key)
        yield _checked(space, found)
    if len(seen) < count:
        yield from _rest(space, fixed, count, seen, watch)


def _rest(
    space: Space, pins: Assignment, count: int, seen: set[tuple[int, ...]], watch: Watch
) -> Iterator[dict[Variable, int]]:
    """Few are left, or few are among the parameters drawn: the others as they come."""
    left_s, cancelled = watch.left_s, watch.cancelled
    memory = watch.limits.memory_bytes
    with enumerate_assignments(
        space, pins, time_limit_s=left_s, memory_bytes=memory, cancelled=cancelled
    ) as rest:
        for assignment in rest:
            key = tuple(assignment.values())
            if key in seen:
                continue
            seen.add(key)
            yield assignment
            if len(seen) >= count:
                return
    watch.tick()
    if not rest.complete:
        raise LimitError("the solver stopped before all assignments were found")
    if not seen:
        raise UnsatisfiableError("no valid assignment agrees with what is fixed")


def _checked(space: Space, assignment: dict[Variable, int]) -> dict[Variable, int]:
    violations = check(space, assignment)
    if violations:
        broken = ", ".join(violation.constraint for violation in violations)
        raise AssertionError(f"the solver's answer breaks {broken}")
    return assignment


def _solve(
    model: Model,
    random: Random,
    watch: Watch,
    at_most_s: float | None,
    effort: float | None = None,
) -> dict[Variable, int] | None:
    """The first solution of a dive in random order; None if there is none, or none was found
    within ``at_most_s``."""
    _add_random_strategy(model, random)
    solver = solver_with(seed=random.getrandbits(30))
    solver.parameters.search_branching = cp_model.FIXED_SEARCH
    solver.parameters.cp_model_presolve = False
    if effort is not None:
        solver.parameters.max_deterministic_time = effort
    status = solve_within(watch, solver, model.cp, at_most_s=at_most_s)
    match status:
        case cp_model.OPTIMAL | cp_model.FEASIBLE:
            return model.read(solver.value)
        case cp_model.INFEASIBLE:
            return None
        case _:
            watch.tick()
            if at_most_s is not None:
                return None
            raise LimitError(f"the solver stopped without an answer: {solver.status_name(status)}")


def _add_random_strategy(model: Model, random: Random) -> None:
    lowering = model.lowering
    open_variables = [v for v, _ in model.space.variables if v not in model.pins]
    random.shuffle(open_variables)
    literals: list[int] = []
    for variable in open_variables:
        values = lowering.value_literals(variable)
        if values is None:
            domain = lowering.domains[variable]
            targets = random.sample(domain, min(_TARGETS, len(domain)))
            chosen = [lowering.literal(Member(variable, frozenset({t}))) for t in targets]
        else:
            chosen = list(values.values())
            random.shuffle(chosen)
        literals += chosen
    if literals:
        model.cp.add_decision_strategy(
            [lowering.cp.variable(index) for index in literals if index >= 0],
            cp_model.CHOOSE_FIRST,
            cp_model.SELECT_MAX_VALUE,
        )


class ParameterDraw:
    """Draws tuning parameters that satisfy every constraint over parameters alone."""

    def __init__(self, space: Space, pins: Mapping[Variable, int]) -> None:
        self._domains = space.domains
        self.open = [
            variable
            for variable, _ in space.variables
            if isinstance(variable, ParameterVariable) and variable not in pins
        ]
        self._mentioning: dict[Variable, list[Predicate]] = {v: [] for v in self.open}
        self._impossible = False
        for constraint in space.constraints:
            predicate = bind(constraint.predicate, pins)
            if predicate == Truth(False):
                self._impossible = True
            names = variables(predicate)
            if names and names <= self._mentioning.keys():
                for name in names:
                    self._mentioning[name].append(predicate)

    def draw(self, random: Random, watch: Watch) -> dict[Variable, int] | None:
        """Random values; None where none were found within the budget."""
        if self._impossible:
            return None
        for _ in range(_DRAW_RESTARTS):
            watch.tick()
            chosen = self._descend(random)
            if chosen is not None:
                return chosen
        return None

    def _descend(self, random: Random) -> dict[Variable, int] | None:
        order = list(self.open)
        random.shuffle(order)
        # Depth first without recursion: for each depth the values still to be tried.
        chosen: dict[Variable, int] = {}
        untried: list[list[int]] = []
        for _ in range(_DRAW_NODES):
            depth = len(chosen)
            if depth == len(order):
                return chosen
            if len(untried) == depth:
                values = list(self._domains[order[depth]])
                random.shuffle(values)
                untried.append(values)
            if not untried[depth]:
                if depth == 0:
                    return None
                untried.pop()
                del chosen[order[depth - 1]]
                continue
            variable = order[depth]
            chosen[variable] = untried[depth].pop()
            if not self._consistent(variable, chosen):
                del chosen[variable]
        return None

    def _consistent(self, variable: Variable, chosen: Mapping[Variable, int]) -> bool:
        return all(
            evaluate_partial(predicate, chosen, self._domains) is not False
            for predicate in self._mentioning[variable]
        )
