"""Factored spaces have the solutions of brute force and of one diagram, in one order everywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapper.ast_model.nodes import Relation
from mapper.constraint_rules.predicate import (
    IntTerm,
    ParameterVariable,
    Predicate,
    add,
    any_of,
    compare,
    divides,
    floor_divide,
    maximum,
    member,
    multiply,
    negate,
    remainder,
    select,
)
from mapper.constraint_rules.rule import Constraint, Provenance
from mapper.solver.diagram import compile as compiling
from mapper.solver.diagram import elimination, grid
from mapper.solver.diagram.compile import compile_arithmetic, compile_factors
from mapper.solver.limits import Cancelled, SolveLimits, Watch
from mapper.solver.space import Space
from tests.effort import cases
from tests.property.test_solver_against_brute_force import brute_force

NAMES = [ParameterVariable(name) for name in "abcdef"]
DOMAINS = st.lists(
    st.lists(st.integers(-6, 12), min_size=1, max_size=5, unique=True).map(sorted),
    min_size=len(NAMES),
    max_size=len(NAMES),
)
VARIABLES = st.sampled_from(NAMES)
LEAVES: st.SearchStrategy[IntTerm] = VARIABLES | st.integers(-9, 9).map(add)


def terms(inner: st.SearchStrategy[IntTerm]) -> st.SearchStrategy[IntTerm]:
    return st.one_of(
        st.builds(add, inner, inner),
        st.builds(multiply, inner, inner),
        st.builds(maximum, inner, inner),
        st.builds(floor_divide, inner, inner),
        st.builds(remainder, inner, inner),
        st.builds(
            lambda name, value, then, otherwise: select(member(name, [value]), then, otherwise),
            VARIABLES, st.integers(-6, 12), inner, inner,
        ),
    )  # fmt: skip


TERMS = st.recursive(LEAVES, terms, max_leaves=5)
RELATIONS = st.sampled_from([relation for relation in Relation if relation is not Relation.DIVIDES])
SIMPLE: st.SearchStrategy[Predicate] = st.builds(compare, RELATIONS, TERMS, TERMS) | st.builds(
    member, VARIABLES, st.lists(st.integers(-6, 12), min_size=1, max_size=6)
)
PREDICATES = st.one_of(
    SIMPLE, SIMPLE.map(negate), st.builds(any_of, SIMPLE, SIMPLE), st.builds(divides, TERMS, TERMS)
)


def required(predicate: Predicate) -> Constraint:
    return Constraint("c", "test", (), predicate, Provenance("test", ""), None, "", "")


def space_of(domains: list[list[int]], predicates: list[Predicate]) -> Space:
    entries = zip(NAMES, map(tuple, domains), strict=True)
    return Space(tuple(entries), tuple(required(predicate) for predicate in predicates))


@pytest.fixture(params=["one array", "eliminated", "swept", "axes are few"])
def narrow(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each way to solve a group, whatever its size."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "eliminated":
            patch.setattr(elimination, "ONE_ARRAY", 1)
        if request.param == "swept":
            patch.setattr(grid, "MOST_COMBINATIONS", 4)
        if request.param == "axes are few":
            patch.setattr(compiling, "MOST_AXES", 3)
        yield


@pytest.mark.usefixtures("narrow")
@settings(max_examples=cases(50, 120))
@given(DOMAINS, st.lists(PREDICATES, max_size=4))
def test_factors_hold_all_solutions_and_no_others(
    domains: list[list[int]], predicates: list[Predicate]
) -> None:
    space = space_of(domains, predicates)
    expected = brute_force(space)
    factors = compile_factors(space, Watch())
    rows = [tuple(row.values()) for row in factors.table().assignments()]
    assert factors.count == len(rows) == len(expected) == compile_arithmetic(space, Watch()).count
    assert set(rows) == expected
    ranked = factors.at_ranks(range(factors.count)).assignments()
    assert [tuple(row.values()) for row in ranked] == rows


@pytest.mark.usefixtures("narrow")
def test_all_solutions_of_a_chain_of_divisors_are_drawn_equally_often() -> None:
    space = space_of(
        [[1, 2, 3, 4, 6, 12]] * 3 + [[1, 2]] * 3,
        [divides(NAMES[1], NAMES[0]), divides(NAMES[2], NAMES[1]), divides(NAMES[3], NAMES[0])],
    )
    factors = compile_factors(space, Watch())
    number = 60 * factors.count
    drawn = Counter(tuple(row.values()) for row in factors.sample(number, 7).assignments())
    assert set(drawn) == brute_force(space)
    # The chi-square statistic of a uniform choice; 5 standard deviations are accepted.
    freedom = factors.count - 1
    statistic = sum((seen - 60) ** 2 / 60 for seen in drawn.values())
    assert abs(statistic - freedom) < 5 * (2 * freedom) ** 0.5
    assert factors.sample(50, 3).assignments() == factors.sample(50, 3).assignments()
    assert factors.sample(50, 3).assignments() != factors.sample(50, 4).assignments()


def test_numbers_beyond_64_bits_are_compared_exactly() -> None:
    a, b, c, *_ = NAMES
    large = 2**62
    space = space_of(
        [[3, 5, 7], [2, 3], [1, 2], [0], [0], [0]],
        [compare(Relation.GT, multiply(a, b, large), multiply(c, 5, large)),
         compare(Relation.NE, multiply(a, large, large), multiply(5, large, large))],
    )  # fmt: skip
    factors = compile_factors(space, Watch())
    rows = {tuple(row.values()) for row in factors.table().assignments()}
    assert rows == brute_force(space)
    assert factors.count == len(rows) > 0


def test_a_contradiction_of_constants_leaves_nothing() -> None:
    space = space_of([[1], [2], [1, 2], [1, 2], [1], [1]], [compare(Relation.LT, NAMES[1], 2)])
    factors = compile_factors(space, Watch())
    assert factors.count == len(factors.table()) == len(factors.sample(5, 0)) == 0


def test_a_table_larger_than_allowed_is_refused_before_it_is_made() -> None:
    space = space_of([[1, 2, 3]] * 6, [])
    factors = compile_factors(space, Watch(SolveLimits(solutions=3**6 - 1)))
    with pytest.raises(Exception, match="too many solutions to list"):
        factors.table(Watch(SolveLimits(solutions=3**6 - 1)))


@pytest.mark.usefixtures("narrow")
def test_a_variable_that_is_mentioned_without_mattering_ties_nothing() -> None:
    a, b, c, *_, f = NAMES
    chosen = select(member(f, [0]), a, b)
    space = space_of(
        [[0, 1, 2], [0], [0, 1], [0], [0], [1, 2]],
        [compare(Relation.EQ, a, c), divides(chosen, a)],
    )
    factors = compile_factors(space, Watch())
    rows = {tuple(row.values()) for row in factors.table().assignments()}
    assert rows == brute_force(space)
    assert factors.count == len(rows) > 0


def test_the_caller_can_cancel_between_any_two_constraints() -> None:
    asked: list[int] = []

    def cancelled() -> bool:
        asked.append(1)
        return len(asked) > 2

    demands = [divides(name, 12) for name in NAMES]
    space = space_of([[1, 2, 3, 5]] * 6, demands)
    with pytest.raises(Cancelled):
        compile_factors(space, Watch(cancelled=cancelled))
    assert len(asked) == 3
