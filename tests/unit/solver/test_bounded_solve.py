"""A solve ends when its time is over or the caller cancels, however hard the problem."""

from __future__ import annotations

import pytest
from ortools.sat.python import cp_model

from mapper.solver.bounded_solve import solve_within
from mapper.solver.limits import Cancelled, SolveLimits, Watch
from mapper.solver.model import solver_with

# Two primes of nine and ten digits: nobody finds them from their product while a test waits.
PRODUCT = 982_451_653 * 1_500_450_271


def hard_model() -> cp_model.CpModel:
    model = cp_model.CpModel()
    left, right = model.new_int_var(2, 2**31, "left"), model.new_int_var(2, 2**31, "right")
    product = model.new_int_var(PRODUCT, PRODUCT, "product")
    model.add_multiplication_equality(product, [left, right])
    model.add(left < right)
    return model


def easy_model() -> cp_model.CpModel:
    model = cp_model.CpModel()
    model.new_int_var(0, 1, "x")
    return model


def test_an_answer_is_given():
    assert solve_within(Watch(), solver_with(), easy_model()) == cp_model.OPTIMAL


@pytest.mark.parametrize(
    ("watch", "at_most_s"),
    [(Watch(SolveLimits(time_s=0.3)), None), (Watch(), 0.3), (Watch(SolveLimits(time_s=300)), 0.3)],
)
def test_the_time_limit_ends_it_without_an_answer(watch: Watch, at_most_s: float | None):
    found = solve_within(watch, solver_with(), hard_model(), at_most_s=at_most_s)
    assert found == cp_model.UNKNOWN


def test_no_time_is_no_answer():
    spent = Watch(SolveLimits(time_s=0.0))
    assert solve_within(spent, solver_with(), easy_model()) == cp_model.UNKNOWN


def test_cancelling_ends_it():
    asked: list[None] = []

    def cancelled() -> bool:
        asked.append(None)
        return len(asked) > 3

    with pytest.raises(Cancelled):
        solve_within(Watch(cancelled=cancelled), solver_with(), hard_model())


def test_what_fails_in_the_solver_s_thread_is_raised_here():
    with pytest.raises(AttributeError):
        solve_within(Watch(), solver_with(), None)  # pyright: ignore[reportArgumentType]
