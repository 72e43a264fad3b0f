"""Preferences: the best assignment, and the space cut into levels of equal preference.

An assignment is as good as the sum of the weights of the preferences that it meets. A level is
a space of its own, with the score as one more constraint, so that it is enumerated, counted
and sampled like any other; going through the levels from the top gives best first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ortools.sat.python import cp_model

from mapper.ast_model.nodes import Relation
from mapper.constraint_rules.predicate import (
    IntTerm,
    Member,
    Predicate,
    Variable,
    add,
    compare,
    select,
)
from mapper.constraint_rules.rule import NESTMAP, SCORE, Constraint, Provenance
from mapper.errors import LimitError, Problem
from mapper.solver.bounded_solve import solve_within
from mapper.solver.limits import SolveLimits, Watch
from mapper.solver.model import Model, build_model, solver_with
from mapper.solver.ordered_dive import ascending, first_in_order
from mapper.solver.restrictions import Restrictions, narrowed
from mapper.solver.space import Space, check

_PROVENANCE = Provenance(NESTMAP, "")


@dataclass(frozen=True, slots=True)
class Best:
    """A valid assignment and its score; ``proven`` says that no score is higher."""

    assignment: Mapping[Variable, int]
    score: int
    proven: bool


def best(
    space: Space,
    restrictions: Restrictions,
    *,
    time_limit_s: float | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Best | None:
    """The valid assignment with the highest score; None if the restrictions leave none.

    Of several the first in the order of the space is taken, values ascending. Raises
    InputError for restrictions that do not fit the space, LimitError if no valid assignment
    was found in time, Cancelled if the caller asked to stop.
    """
    return _best(
        narrowed(space, restrictions),
        restrictions,
        Watch(SolveLimits(time_s=time_limit_s), cancelled),
    )


def levels(
    space: Space,
    restrictions: Restrictions,
    *,
    time_limit_s: float | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Iterator[tuple[int, Space]]:
    """Each score that some valid assignment has, highest first, with the space of these.

    The spaces are narrowed by the restrictions, not empty, and together they are everything
    valid. Raises as :func:`best`, LimitError also where the time is over before the next
    score is known.
    """
    watch = Watch(SolveLimits(time_s=time_limit_s), cancelled)
    rest = open_space = narrowed(space, restrictions)
    while True:
        top = _best(rest, restrictions, watch)
        if top is None:
            return
        if not top.proven:
            raise _out_of_time(watch)
        yield top.score, _with_score(open_space, restrictions, Relation.EQ, top.score)
        rest = _with_score(open_space, restrictions, Relation.LT, top.score)


def _with_score(space: Space, restrictions: Restrictions, relation: Relation, score: int) -> Space:
    predicate: Predicate = compare(relation, _score_term(space, restrictions), score)
    constraint = Constraint(
        SCORE,
        SCORE,
        (),
        predicate,
        _PROVENANCE,
        None,
        f"the preferences that are met weigh {'less than ' * (relation is Relation.LT)}{score}",
        "ask for fewer preferences",
    )
    return Space(space.variables, (*space.constraints, constraint))


def _score_term(space: Space, restrictions: Restrictions) -> IntTerm:
    domains = space.domains
    return add(
        *(
            select(Member(variable, frozenset({value})), weight, 0)
            for (variable, value), weight in restrictions.preferred.items()
            if value in domains[variable]
        )
    )


def _best(space: Space, restrictions: Restrictions, watch: Watch) -> Best | None:
    model = build_model(space, watch=watch.tick)
    cp = model.lowering.cp
    wishes = _literals(model, restrictions)
    if wishes:
        cp.maximise(cp.weighted(wishes))
    solver = solver_with()
    status = solve_within(watch, solver, model.cp)
    if status == cp_model.INFEASIBLE:
        return None
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise _out_of_time(watch)
    found, proven = model.read(solver.value), status == cp_model.OPTIMAL
    if proven:
        cp.drop_objective()
        if wishes:
            highest = round(solver.objective_value)
            cp.within(cp.weighted(wishes), cp_model.Domain(highest, highest))
        found = first_in_order(model, ascending, watch) or found
    broken = ", ".join(violation.constraint for violation in check(space, found))
    if broken:
        raise AssertionError(f"the solver's answer breaks {broken}")
    return Best(found, restrictions.score(found), proven)


def _literals(model: Model, restrictions: Restrictions) -> dict[int, int]:
    """The Boolean of each preference that is still open, with its weight."""
    domains = model.space.domains
    return {
        model.lowering.literal(Member(variable, frozenset({value}))): weight
        for (variable, value), weight in restrictions.preferred.items()
        if variable not in model.pins and value in domains[variable]
    }


def _out_of_time(watch: Watch) -> LimitError:
    return LimitError(
        Problem(
            "",
            "the best mapping was not found in time",
            "" if not watch.limits.time_s else f"{watch.limits.time_s:g} s",
            "",
            "--time-limit, or fewer preferences",
        )
    )
