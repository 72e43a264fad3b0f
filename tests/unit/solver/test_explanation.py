"""Explanations of empty spaces, in words; nearest mappings; bad input, limits and cancelling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from ortools.sat.python import cp_model

from mapper.ast_model.nodes import Relation
from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    ParameterVariable,
    Predicate,
    Variable,
    add,
    compare,
    divides,
    member,
    multiply,
)
from mapper.constraint_rules.rule import Constraint, Mode, Provenance, RuleOptions
from mapper.errors import InputError, LimitError
from mapper.pipeline import derive_space
from mapper.profiles import load_profile
from mapper.solver import explanation
from mapper.solver.bounded_solve import solve_within
from mapper.solver.conflict_parts import PartKind
from mapper.solver.explanation import explain_conflict
from mapper.solver.limits import Cancelled
from mapper.solver.nearest import Change, nearest
from mapper.solver.preferences import best, levels
from mapper.solver.restrictions import UNRESTRICTED, Restrictions
from mapper.solver.space import Space, check
from tests.unit.kernel_gen.listing1 import listing1

ROW, COLUMN = CodeVariable("row"), CodeVariable("column")
THETA, RHO = ParameterVariable("theta"), ParameterVariable("rho")
SIZE = LocalSizeVariable("k", 0)


def space(
    variables: dict[Variable, tuple[int, ...]], *predicates: Predicate, rule: str = "t"
) -> Space:
    return Space(
        tuple(variables.items()),
        tuple(
            Constraint(
                f"{rule}/{i}", rule, (), predicate, Provenance("t", ""), None, f"why {i}", ""
            )
            for i, predicate in enumerate(predicates)
        ),
    )


def explained(empty: Space, restrictions: Restrictions = UNRESTRICTED) -> list[str]:
    found = explain_conflict(empty, restrictions)
    assert found is not None and found.minimal
    return [part.sentence for part in found.parts]


def test_a_chain_of_constraints_is_named_and_what_has_no_part_in_it_is_not():
    x, y, z, w = (ParameterVariable(name) for name in "xyzw")
    numbers = tuple(range(1, 41))
    empty = space(
        dict.fromkeys((x, y, z, w), numbers),
        compare(Relation.LT, x, y),
        compare(Relation.GT, w, x),
        compare(Relation.LT, y, z),
        compare(Relation.LE, add(z, w), 70),
        compare(Relation.LT, z, x),
    )
    assert explained(empty) == ["why 0", "why 2", "why 4"]


def test_restrictions_stand_beside_the_constraints_that_they_break():
    empty = space(
        {THETA: (2, 3, 5), RHO: (1, 2, 3), ROW: (0, 1)},
        compare(Relation.EQ, add(THETA, RHO), 4),
        member(ROW, {0, 1}),
    )
    restrictions = Restrictions(
        {ROW: 1}, {THETA: frozenset({2, 5})}, {RHO: frozenset({2}), THETA: frozenset({5})}
    )
    # That theta is not to be 5 has no part in it: rho would have to be -1.
    assert explained(empty, restrictions) == [
        "why 0",
        "tuning parameter theta is to be one of 2, 5",
        "tuning parameter rho is forbidden to be 2",
    ]


def test_a_domain_is_named_where_another_value_would_help():
    empty = space({THETA: (5, 7), SIZE: (1, 2, 4)}, divides(THETA, 8), divides(SIZE, 64))
    assert explained(empty) == ["why 0", "tuning parameter theta is one of 5, 7"]
    empty = space({SIZE: (1, 2, 3, 4)}, compare(Relation.GE, SIZE, 64))
    assert explained(empty) == [
        "why 0",
        "the local size of kernel k in dimension 0 is at most 4, without a prime factor above 7",
    ]
    empty = space({ROW: (0, 10), COLUMN: (0, 1)}, member(ROW, {1, 20}))
    assert explained(empty) == [
        "why 0",
        "map row is one of S, L0, and not fused, since it is not perfectly nested in another map",
    ]


def test_preferences_are_named_only_where_no_other_constraint_explains_it():
    variables: dict[Variable, tuple[int, ...]] = {ROW: (0, 10), COLUMN: (0, 10)}
    heuristic = space(variables, member(ROW, {10}), rule="sequential-fusion")
    needed = space(variables, compare(Relation.NE, ROW, COLUMN), rule="t")
    both = Space(heuristic.variables, heuristic.constraints + needed.constraints)
    found = explain_conflict(both, Restrictions({ROW: 0, COLUMN: 0}))
    assert found is not None
    assert [part.rule for part in found.parts] == ["t", "pin", "pin"]
    found = explain_conflict(heuristic, Restrictions({ROW: 0}))
    assert found is not None
    assert [part.rule for part in found.parts] == ["sequential-fusion", "pin"]


def test_nothing_is_explained_where_something_is_valid():
    assert explain_conflict(space({THETA: (1, 2)}, compare(Relation.GT, THETA, 1))) is None


def test_products_too_large_to_be_guarded_are_explained_all_the_same():
    numbers = tuple(range(1, 2**16, 1000))
    names = [ParameterVariable(f"p{i}") for i in range(5)]
    empty = space(
        dict.fromkeys(names, numbers),
        compare(Relation.LE, multiply(*names), 1000),
        *(compare(Relation.GT, name, 1) for name in names[:2]),
    )
    found = explain_conflict(empty)
    assert found is not None
    product, above_1, domain = (part.constraint for part in found.parts)
    assert (product, above_1, domain) in {
        ("t/0", "t/1", "parameter-domain/p0"),
        ("t/0", "t/2", "parameter-domain/p1"),
    }


def test_domains_that_no_solver_could_widen_are_left_out_by_their_bounds():
    # Six numbers up to 4096 have a product beyond 64 bits; that it is at least 16 needs none.
    names = [ParameterVariable(f"p{i}") for i in range(6)]
    empty = space(dict.fromkeys(names, (2, 3)), compare(Relation.LE, multiply(16, *names), 15))
    assert explained(empty) == ["why 0"]


def test_a_device_that_is_too_small_explains_an_empty_space():
    tiny = replace(load_profile("pocl"), local_bytes=64)
    empty = derive_space(listing1("local"), Mode.STRICT, tiny, RuleOptions())
    found = explain_conflict(empty)
    assert found is not None and found.minimal
    (part,) = found.parts
    assert (part.rule, part.buffer) == ("device-limits", "out_tmp_1")
    assert "64 bytes of local memory" in part.sentence


def test_a_broken_constraint_of_no_variable_explains_itself():
    impossible = compare(Relation.EQ, 1, 2)
    assert explained(space({THETA: (1, 2)}, impossible)) == ["why 0"]


def test_the_nearest_changes_the_fewest_codes_before_anything_else():
    # Either one code or both numbers have to change: the numbers do.
    open_space = space(
        {ROW: (0, 10, 20), THETA: (1, 2, 3), SIZE: (1, 2, 4, 8)},
        compare(Relation.EQ, add(THETA, SIZE), multiply(1, ROW)),
    )
    found = nearest(open_space, {ROW: 10, THETA: 1, SIZE: 2})
    assert found is not None and found.proven
    assert found.changes == (Change(THETA, 1, 2), Change(SIZE, 2, 8))


def test_ties_go_to_the_closest_value_and_the_first_variable_keeps_its_own():
    numbers = space({THETA: (1, 2, 6, 9), RHO: (1, 2, 6, 9)}, compare(Relation.NE, THETA, RHO))
    found = nearest(numbers, {THETA: 6, RHO: 6})
    assert found is not None
    assert found.changes == (Change(RHO, 6, 9),)
    codes = space({ROW: (0, 1, 10, 12, 20, 30)}, member(ROW, {0, 1, 10, 12, 20, 30}))
    for given, expected in ((11, 10), (21, 20), (4, 0)):
        found = nearest(codes, {ROW: given})
        assert found is not None
        assert found.changes == (Change(ROW, given, expected),)


def test_what_is_not_given_is_free_and_smallest():
    open_space = space({THETA: (1, 2), RHO: (3, 4)}, compare(Relation.GT, add(THETA, RHO), 4))
    found = nearest(open_space, {THETA: 1})
    assert found is not None
    assert (found.assignment, found.changes) == ({THETA: 1, RHO: 4}, ())


def test_nothing_is_near_in_an_empty_space():
    assert nearest(space({THETA: (1, 2)}, member(THETA, ())), {THETA: 1}) is None
    assert best(space({THETA: (1, 2)}, member(THETA, ())), UNRESTRICTED) is None


def test_an_answer_that_is_not_proven_says_so_and_is_valid(monkeypatch: pytest.MonkeyPatch):
    def out_of_time(*args: Any, **how: Any) -> cp_model.CpSolverStatus:
        status = solve_within(*args, **how)
        return cp_model.FEASIBLE if status == cp_model.OPTIMAL else status

    monkeypatch.setattr("mapper.solver.nearest.solve_within", out_of_time)
    monkeypatch.setattr("mapper.solver.preferences.solve_within", out_of_time)
    found = nearest(NUMBERS, {THETA: 2, RHO: 1})
    assert found is not None and not found.proven
    assert check(NUMBERS, found.assignment) == ()
    wishes = Restrictions(preferred={(THETA, 2): 1})
    top = best(NUMBERS, wishes)
    assert top is not None and not top.proven
    assert check(NUMBERS, top.assignment) == ()
    # Levels would be in the wrong order.
    with pytest.raises(LimitError, match="the best mapping was not found in time"):
        list(levels(NUMBERS, wishes))


NUMBERS = space({THETA: (1, 2), RHO: (3, 4)}, compare(Relation.LT, THETA, RHO))
EVERY_ANSWER: list[Callable[..., object]] = [
    lambda restrictions, **how: explain_conflict(NUMBERS, restrictions, **how),
    lambda restrictions, **how: nearest(NUMBERS, {THETA: 1}, restrictions, **how),
    lambda restrictions, **how: best(NUMBERS, restrictions, **how),
    lambda restrictions, **how: list(levels(NUMBERS, restrictions, **how)),
]


@pytest.mark.parametrize("answer", EVERY_ANSWER)
def test_limits_cancelling_and_bad_restrictions(answer: Callable[..., object]):
    with pytest.raises(LimitError):
        answer(UNRESTRICTED, time_limit_s=0.0)
    with pytest.raises(Cancelled):
        answer(UNRESTRICTED, cancelled=lambda: True)
    with pytest.raises(InputError, match="theta: does not have the value"):
        answer(Restrictions({THETA: 7}))
    with pytest.raises(InputError, match="row"):
        answer(Restrictions({ROW: 0}))


def test_the_nearest_refuses_variables_that_there_are_not():
    with pytest.raises(InputError, match="there is no such variable; found 0"):
        nearest(NUMBERS, {ROW: 0})


def test_without_time_an_explanation_says_that_it_may_not_be_minimal(
    monkeypatch: pytest.MonkeyPatch,
):
    # Seen without a solver: a constraint that the pins refute. Whether it is minimal is not.
    empty = space({THETA: (1, 2), RHO: (1, 2)}, compare(Relation.LT, THETA, RHO))
    monkeypatch.setattr(explanation, "_SHARE", 0.0)
    found = explain_conflict(empty, Restrictions({THETA: 2}), time_limit_s=0.0)
    assert found is not None
    assert not found.minimal
    assert [part.kind for part in found.parts][:2] == [PartKind.CONSTRAINT, PartKind.PIN]
