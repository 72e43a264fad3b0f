"""The one solution that comes first in a stated order of values: how ties are broken.

Branching takes the variables in the order of the space and the values of each in a given
order. CP-SAT's fixed search decides nothing else, and whatever else it concludes follows from
the constraints; so its first solution is the first of all in that lexicographic order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ortools.sat.python import cp_model

from mapper.constraint_rules.predicate import Member, Variable
from mapper.solver.bounded_solve import solve_within
from mapper.solver.limits import Watch
from mapper.solver.model import Model, solver_with
from mapper.solver.space import Domain

# Of a larger domain the first values are decided one by one, then the smallest comes first.
_DECIDED_ONE_BY_ONE = 256

ValueOrder = Callable[[Variable, Domain], Sequence[int]]


def ascending(variable: Variable, domain: Domain) -> Sequence[int]:
    """Smallest values first."""
    del variable
    return domain


def first_in_order(model: Model, order: ValueOrder, watch: Watch) -> dict[Variable, int] | None:
    """The first solution in that order; None if the time was over or there is none.

    The model gets decision strategies and must have no objective.
    """
    lowering = model.lowering
    for variable, domain in model.space.variables:
        if variable in model.pins:
            continue
        values = order(variable, domain)[:_DECIDED_ONE_BY_ONE]
        literals = [lowering.literal(Member(variable, frozenset({value}))) for value in values]
        lowering.cp.decide_in_order(literal for literal in literals if literal >= 0)
        integer = lowering.integer_of(variable)
        if lowering.value_literals(variable) is None and integer is not None:
            lowering.cp.decide_smallest(integer)
    solver = solver_with()
    solver.parameters.search_branching = cp_model.FIXED_SEARCH
    solver.parameters.cp_model_presolve = False
    if solve_within(watch, solver, model.cp) in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return model.read(solver.value)
    return None
