"""Pins, allowed sets and forbidden values narrow a space; bad ones are refused by name."""

from __future__ import annotations

import pytest

from mapper.constraint_rules.predicate import CodeVariable, ParameterVariable, Variable
from mapper.errors import InputError
from mapper.solver.restrictions import MAX_WEIGHT, UNRESTRICTED, Restrictions, narrowed
from mapper.solver.space import Space

MAP: Variable = CodeVariable("row")
THETA: Variable = ParameterVariable("theta")
SPACE = Space(((MAP, (0, 1, 20)), (THETA, (2, 3, 5))), ())


def test_domains_shrink_and_keep_their_order():
    found = narrowed(
        SPACE, Restrictions({MAP: 20}, {THETA: frozenset({5, 2})}, {THETA: frozenset({3})})
    )
    assert found.variables == ((MAP, (20,)), (THETA, (2, 5)))
    assert narrowed(SPACE, Restrictions(forbidden={MAP: frozenset({1})})).domains[MAP] == (0, 20)


def test_preferences_take_nothing_away():
    assert narrowed(SPACE, Restrictions(preferred={(THETA, 5): 3})) is SPACE
    assert narrowed(SPACE, UNRESTRICTED) is SPACE


def test_the_score_is_the_sum_of_the_weights_met():
    wishes = Restrictions(preferred={(THETA, 5): 3, (THETA, 2): 1, (MAP, 0): 10})
    assert wishes.score({MAP: 0, THETA: 5}) == 13
    assert wishes.score({MAP: 1, THETA: 2}) == 1
    assert wishes.score({MAP: 1, THETA: 3}) == 0


NOBODY: Variable = ParameterVariable("nobody")


@pytest.mark.parametrize(
    ("restrictions", "words"),
    [
        (Restrictions({NOBODY: 1}), "nobody: there is no such variable, so it cannot be pinned"),
        (Restrictions({MAP: 10}), "found L0; allowed: S, F, W0"),
        (Restrictions(allowed={THETA: frozenset({2, 7})}), "found 7; allowed: 2, 3, 5"),
        (Restrictions(forbidden={THETA: frozenset({4})}), "the value that is forbidden; found 4"),
        (Restrictions(preferred={(THETA, 4): 1}), "the value that is preferred; found 4"),
        (Restrictions(preferred={(THETA, 2): 0}), "the weight is out of range; found 0"),
        (Restrictions(preferred={(THETA, 2): MAX_WEIGHT + 1}), "out of range"),
        (Restrictions({THETA: 2}, forbidden={THETA: frozenset({2})}), "no value is left"),
        (Restrictions({THETA: 2}, {THETA: frozenset({3, 5})}), "no value is left"),
        (Restrictions(allowed={MAP: frozenset()}), "no value is left"),
        (Restrictions(forbidden={MAP: frozenset({0, 1, 20})}), "no value is left"),
    ],
)
def test_what_does_not_fit_the_space_is_refused_by_name(restrictions: Restrictions, words: str):
    with pytest.raises(InputError) as refused:
        narrowed(SPACE, restrictions)
    assert words in str(refused.value)


def test_every_problem_is_named_at_once():
    with pytest.raises(InputError) as refused:
        narrowed(
            SPACE,
            Restrictions({MAP: 10}, forbidden={NOBODY: frozenset({1}), THETA: frozenset({9})}),
        )
    assert len(refused.value.problems) == 3
