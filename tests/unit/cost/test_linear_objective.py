"""A linear model as the solver's objective: best first, and nothing below the bound."""

from __future__ import annotations

import pytest

from mapper.constraint_rules.predicate import Variable
from mapper.cost.linear_objective import best_predicted, fit_linear, least_log_time
from mapper.errors import InputError, UnsatisfiableError
from mapper.search.candidates import candidates_of
from mapper.solver.space import check
from tests.unit.search.spaces import limited_space, time_of

SPACE = limited_space(64)


def _measured() -> list[tuple[dict[Variable, int], float]]:
    names = [name for name, _ in SPACE.variables]
    drawn = candidates_of(SPACE).draw(40, 1)
    return [(dict(zip(names, choice, strict=True)), time_of(choice)) for choice in drawn]


def test_the_least_predicted_come_first_and_are_valid() -> None:
    model = fit_linear(SPACE, _measured())
    found = list(best_predicted(SPACE, model, 12))
    predicted = [model.log_time(assignment) for assignment in found]
    listed = candidates_of(SPACE).listed
    assert listed is not None
    names = [name for name, _ in SPACE.variables]
    everything = sorted(
        model.log_time(dict(zip(names, row, strict=True))) for row in listed.tolist()
    )
    assert predicted == pytest.approx(everything[:12], abs=0.004)
    assert not any(check(SPACE, assignment) for assignment in found)
    assert least_log_time(SPACE, model) == pytest.approx(everything[0], abs=0.004)


def test_predictions_order_what_was_not_measured() -> None:
    model = fit_linear(SPACE, _measured())
    best = [tuple(found.values()) for found in best_predicted(SPACE, model, 10)]
    listed = candidates_of(SPACE).listed
    assert listed is not None
    typical = sum(map(time_of, map(tuple, listed.tolist()))) / len(listed)
    assert sum(map(time_of, best)) / 10 < 0.7 * typical


def test_nothing_to_fit_and_nothing_valid() -> None:
    with pytest.raises(InputError):
        fit_linear(SPACE, [])
    model = fit_linear(SPACE, _measured())
    with pytest.raises(UnsatisfiableError):
        least_log_time(limited_space(0), model)
