"""Restrictions, the nearest and the best assignment are what a search over all values finds."""

from __future__ import annotations

from itertools import groupby

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from mapper.constraint_rules.predicate import CodeVariable, Variable
from mapper.constraint_rules.rule import Constraint, Mode, Provenance
from mapper.errors import InputError
from mapper.solver.enumeration import enumerate_assignments
from mapper.solver.nearest import distance, nearest
from mapper.solver.preferences import best, levels
from mapper.solver.restrictions import Restrictions, narrowed
from mapper.solver.space import Space, build_space
from tests.effort import cases
from tests.property.test_solver_against_brute_force import (
    DOMAINS,
    OPTIONS,
    PREDICATES,
    brute_force,
    nests,
    small,
)

Row = tuple[int, ...]


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """Small spaces: of nests, and of a few predicates over numbers."""
    if draw(st.booleans()):
        return small(build_space(draw(nests(3)), draw(st.sampled_from(Mode)), draw(OPTIONS)))
    predicates = draw(st.lists(PREDICATES, min_size=1, max_size=4))
    constraints = tuple(
        Constraint(f"t/{i}", "t", (), predicate, Provenance("t", ""), None, f"number {i}", "")
        for i, predicate in enumerate(predicates)
    )
    return Space(tuple(DOMAINS.items()), constraints)


@st.composite
def restrictions_of(draw: st.DrawFn, space: Space) -> Restrictions:
    """Some of every kind, each with values of the variable's own domain."""
    pins: dict[Variable, int] = {}
    allowed: dict[Variable, frozenset[int]] = {}
    forbidden: dict[Variable, frozenset[int]] = {}
    preferred: dict[tuple[Variable, int], int] = {}
    for variable, domain in space.variables:
        value = st.sampled_from(domain)
        match draw(st.integers(0, 6)):
            case 0:
                pins[variable] = draw(value)
            case 1:
                allowed[variable] = frozenset(draw(st.sets(value, min_size=1, max_size=4)))
            case 2:
                forbidden[variable] = frozenset(draw(st.sets(value, max_size=3)))
        if draw(st.booleans()):
            for wanted in draw(st.sets(value, max_size=2)):
                preferred[variable, wanted] = draw(st.integers(1, 3))
    return Restrictions(pins, allowed, forbidden, preferred)


def kept(space: Space, restrictions: Restrictions) -> set[Row]:
    """Everything valid, filtered by what the restrictions say: no narrowed space is used."""
    names = [variable for variable, _ in space.variables]
    return {
        row
        for row in brute_force(space)
        if all(
            restrictions.pins.get(name, value) == value
            and (name not in restrictions.allowed or value in restrictions.allowed[name])
            and value not in restrictions.forbidden.get(name, frozenset())
            for name, value in zip(names, row, strict=True)
        )
    }


def rows(space: Space) -> list[Row]:
    with enumerate_assignments(space) as found:
        listed = [tuple(assignment.values()) for assignment in found]
    assert found.complete
    return listed


SLOW = settings(
    max_examples=cases(25, 60),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@SLOW
@given(st.data())
def test_a_narrowed_space_has_what_the_restrictions_keep(data: st.DataObject):
    space = data.draw(spaces())
    restrictions = data.draw(restrictions_of(space))
    try:
        found = rows(narrowed(space, restrictions))
    except InputError:
        # Refused only where a variable has nothing left.
        assert any(not any(restrictions.keeps(v, n) for n in d) for v, d in space.variables)
        return
    assert len(found) == len(set(found))
    assert set(found) == kept(space, restrictions)


@SLOW
@given(st.data())
def test_nothing_valid_is_nearer_than_the_nearest(data: st.DataObject):
    space = data.draw(spaces())
    restrictions = data.draw(restrictions_of(space))
    assume(all(any(restrictions.keeps(v, n) for n in d) for v, d in space.variables))
    # Values outside a domain, and variables without a value, are what people write too.
    start = {
        variable: data.draw(st.sampled_from([*domain, 7]))
        for variable, domain in space.variables
        if data.draw(st.integers(0, 3))
    }
    names = [variable for variable, _ in space.variables]
    valid = [dict(zip(names, row, strict=True)) for row in kept(space, restrictions)]
    found = nearest(space, start, restrictions)
    if not valid:
        assert found is None
        return
    assert found is not None and found.proven
    assert found.assignment in valid
    assert distance(start, found.assignment) == min(distance(start, other) for other in valid)
    assert {change.variable: change.before for change in found.changes} == {
        name: value for name, value in start.items() if found.assignment[name] != value
    }
    assert all(found.assignment[change.variable] == change.after for change in found.changes)
    assert nearest(space, start, restrictions) == found
    if not any(isinstance(name, CodeVariable) for name in names):
        # Of numbers the closest; the first variable decides, then the second.
        def ties(other: dict[Variable, int]) -> list[tuple[int, int]]:
            return [(abs(other[n] - start[n]) if n in start else 0, other[n]) for n in names]

        nearest_ones = (o for o in valid if distance(start, o) == distance(start, found.assignment))
        assert found.assignment == min(nearest_ones, key=ties)


@SLOW
@given(st.data())
def test_levels_go_from_the_best_to_the_worst_and_are_everything(data: st.DataObject):
    space = data.draw(spaces())
    restrictions = data.draw(restrictions_of(space))
    assume(all(any(restrictions.keeps(v, n) for n in d) for v, d in space.variables))
    names = [variable for variable, _ in space.variables]

    def score(row: Row) -> int:
        return restrictions.score(dict(zip(names, row, strict=True)))

    expected = sorted(kept(space, restrictions), key=lambda row: (-score(row), row))
    found = [(value, sorted(rows(level))) for value, level in levels(space, restrictions)]
    assert found == [
        (-value, list(group)) for value, group in groupby(expected, lambda r: -score(r))
    ]
    top = best(space, restrictions)
    if not expected:
        assert top is None
        return
    assert top is not None and top.proven
    # Ties go to the first in the order of the space, values ascending.
    assert (top.score, tuple(top.assignment.values())) == (score(expected[0]), expected[0])
