"""Spaces counted and drawn as groups with couplings: as a search over everything says."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mapper.ast_model.nodes import Relation
from mapper.constraint_rules.evaluation import evaluate
from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    ParameterVariable,
    Predicate,
    Variable,
    add,
    all_of,
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
from mapper.solver.diagram.events import NotBooleanError
from mapper.solver.factored import tables
from mapper.solver.factored.narrowing import without_forbidden
from mapper.solver.factored.suited import SuitedSpace
from mapper.solver.factored.values import FactoredValues
from mapper.solver.limits import Watch
from mapper.solver.space import Space, check
from tests.effort import cases
from tests.property.test_joint_against_brute_force import PATIENT, codes_of, mixed
from tests.property.test_solver_against_brute_force import brute_force

A, B, C, D = (ParameterVariable(name) for name in "abcd")
SIZE = LocalSizeVariable("k", 0)
DOMAINS: dict[Variable, tuple[int, ...]] = {
    A: (1, 2, 3, 4),
    B: (0, 1, 2, 6),
    C: (1, 2, 4),
    D: (2, 3),
    SIZE: (1, 2, 3, 4, 6, 8),
}
RELATIONS = st.sampled_from([Relation.LE, Relation.LT, Relation.EQ, Relation.NE, Relation.GE])
ATOMS = st.sampled_from([A, B, C, D, SIZE])
TERMS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds(add, inner, inner, st.integers(-2, 3)),
        st.builds(multiply, inner, inner, st.integers(1, 3)),
        st.builds(floor_divide, inner, inner),
        st.builds(lambda x, y: floor_divide(multiply(x, y), multiply(y, 2)), inner, inner),
        st.builds(remainder, inner, inner),
        st.builds(maximum, inner, inner),
        st.builds(lambda one, x, y: select(member(one, [1, 2]), x, y), ATOMS, inner, inner),
    ),
    max_leaves=5,
)
ATOMIC = st.one_of(
    st.builds(compare, RELATIONS, TERMS, TERMS | st.integers(0, 12)),
    st.builds(divides, ATOMS, TERMS),
    st.builds(member, ATOMS, st.sets(st.integers(0, 8), min_size=1, max_size=4)),
)
PREDICATES = st.recursive(
    ATOMIC,
    lambda inner: st.one_of(
        st.builds(lambda parts: all_of(*parts), st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: any_of(*parts), st.lists(inner, min_size=1, max_size=3)),
        st.builds(negate, inner),
    ),
    max_leaves=4,
)
#: A local size that is what some maps have iterations, as spread accumulators demand.
DEFINITIONS = st.builds(
    lambda left, right: compare(Relation.EQ, SIZE, multiply(left, right)),
    st.sampled_from([A, B, C]),
    st.sampled_from([A, C, D, floor_divide(A, C), add(B, D)]),
)


def rows_of(predicates: list[Predicate]) -> list[dict[Variable, int]]:
    rows = (dict(zip(DOMAINS, values, strict=True)) for values in product(*DOMAINS.values()))
    return [row for row in rows if all(evaluate(p, row) for p in predicates)]


@settings(max_examples=cases(60, 150), suppress_health_check=PATIENT, deadline=None)
@given(
    st.lists(PREDICATES, max_size=4),
    st.none() | DEFINITIONS,
    st.sampled_from([1, 20, 1 << 14]),
    st.sets(st.sampled_from([B, D, SIZE])),
)
def test_values_are_those_of_a_search(predicates, definition, joined, last):
    predicates = [*predicates, *([] if definition is None else [definition])]
    before, tables.MOST_JOINED = tables.MOST_JOINED, joined
    try:
        found = FactoredValues(tuple(DOMAINS.items()), predicates, Watch(), last=last)
    finally:
        tables.MOST_JOINED = before
    expected = rows_of(predicates)
    assert found.count == len(expected)
    listed = [found.at_rank(rank) for rank in range(found.count)]
    as_rows = {tuple(row[name] for name in DOMAINS) for row in listed}
    assert as_rows == {tuple(row.values()) for row in expected}
    for value in DOMAINS[D]:
        counts = found.counts({D: value})
        drawn = [found.at_rank(rank, counts) for rank in range(counts.total)]
        only = {tuple(row.values()) for row in expected if row[D] == value}
        assert counts.total == len(only)
        assert {tuple(row[name] for name in DOMAINS) for row in drawn} == only


@settings(max_examples=cases(25, 60), suppress_health_check=PATIENT, deadline=None)
@given(st.lists(PREDICATES, max_size=3), st.lists(st.integers(1, 5), min_size=3, max_size=3))
def test_values_count_for_as_many_as_their_weights_say(predicates, weights):
    ways: dict[Variable, NDArray[np.int64]] = {C: np.array(weights)}
    found = FactoredValues(tuple(DOMAINS.items()), predicates, Watch(), weights=ways, last=[C])
    of_value = dict(zip(DOMAINS[C], weights, strict=True))
    assert found.count == sum(of_value[row[C]] for row in rows_of(predicates))


@settings(max_examples=cases(25, 60), suppress_health_check=PATIENT, deadline=None)
@given(mixed())
def test_counts_and_mappings_are_those_of_a_search_over_everything(space: Space):
    try:
        found = SuitedSpace(space)
    except NotBooleanError:
        assume(False)
        raise
    expected = brute_force(space)
    mappings = codes_of(space, expected)
    assert found.count_joint() == len(expected)
    assert found.count_mappings() == found.counted == len(mappings)
    listed = [tuple(mapping.values()) for mapping in found.mappings()]
    assert len(listed) == len(set(listed)) and set(listed) == mappings
    completed = list(found.completed())
    assert [tuple(c[v] for v in c if isinstance(v, CodeVariable)) for c in completed] == listed
    assert not any(check(space, assignment) for assignment in completed)
    assert list(found.completed(2)) == completed[2:]
    random = Random(1)
    for draw in (found.draw_joint, found.draw_mapping):
        drawn = [draw(random) for _ in range(5)]
        if expected:
            assert all(d is not None and tuple(d.values()) in expected for d in drawn)
        else:
            assert drawn == [None] * 5


@settings(max_examples=cases(20, 40), suppress_health_check=PATIENT, deadline=None)
@given(mixed())
def test_nothing_is_lost_by_narrowing(space: Space):
    narrow = without_forbidden(space, lambda: None)
    assert [variable for variable, _ in narrow.variables] == [v for v, _ in space.variables]
    assert brute_force(narrow) == brute_force(space)


@settings(
    max_examples=8,
    suppress_health_check=[*PATIENT, HealthCheck.data_too_large],
    deadline=None,
)
@given(mixed(), st.integers(0, 9))
def test_draws_reach_every_assignment(space: Space, seed: int):
    try:
        found = SuitedSpace(space)
    except NotBooleanError:
        assume(False)
        raise
    expected = brute_force(space)
    assume(0 < len(expected) <= 40)
    random = Random(seed)
    for draw in (found.draw_joint, found.draw_mapping):
        drawn = (draw(random) for _ in range(60 * len(expected)))
        assert {tuple(d.values()) for d in drawn if d is not None} == expected
