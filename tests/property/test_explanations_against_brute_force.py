"""An explanation contradicts itself, and nothing in it can be left out."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from mapper.constraint_rules.evaluation import evaluate
from mapper.constraint_rules.predicate import CodeVariable, Variable
from mapper.constraint_rules.rule import Mode
from mapper.solver import explanation, lowering
from mapper.solver.conflict_parts import ConflictPart, PartKind
from mapper.solver.explanation import explain_conflict
from mapper.solver.restrictions import Restrictions
from mapper.solver.space import Space, build_space
from tests.effort import cases
from tests.property.test_restrictions_against_brute_force import kept, restrictions_of
from tests.property.test_solver_against_brute_force import (
    DOMAINS,
    OPTIONS,
    PREDICATES,
    nests,
    small,
    space_of,
)

WIDEST = 8


@pytest.fixture(autouse=True)
def few_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that all values of a number without its domain can be gone through."""
    monkeypatch.setattr(explanation, "WIDEST_NUMBER", WIDEST)


def satisfiable(space: Space, parts: Iterable[ConflictPart], with_domains: bool) -> bool:
    """Whether the parts hold together for some values: of the domains, or of any.

    Only variables that occur are gone through; each part narrows first what it can.
    """
    predicates = [part.predicate for part in parts]
    codes = sorted({c for v, d in space.variables if isinstance(v, CodeVariable) for c in d})
    domains: dict[Variable, list[int]] = {}
    for part in parts:
        for variable in part.variables:
            domain = set(space.domains[variable])
            if not with_domains:
                domain |= set(codes if isinstance(variable, CodeVariable) else range(1, WIDEST + 1))
            domains[variable] = sorted(domain)
    for part in parts:
        if len(part.variables) == 1:
            (variable,) = part.variables
            domains[variable] = [
                v for v in domains[variable] if evaluate(part.predicate, {variable: v})
            ]
    return any(
        all(evaluate(predicate, dict(zip(domains, row, strict=True))) for predicate in predicates)
        for row in product(*domains.values())
    )


SLOW = settings(
    max_examples=cases(20, 40),
    suppress_health_check=[
        HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture,
    ],
)  # fmt: skip


def assert_minimal(space: Space, parts: tuple[ConflictPart, ...]) -> None:
    assert not satisfiable(space, parts, with_domains=False)
    for left_out in parts:
        rest = [part for part in parts if part is not left_out]
        # A constraint or a restriction is needed even while every domain stands.
        in_domains = left_out.kind is not PartKind.DOMAIN
        assert satisfiable(space, rest, with_domains=in_domains), left_out.sentence


@SLOW
@given(st.data())
def test_explanations_of_restricted_nests_are_minimal(data: st.DataObject):
    tree, mode, options = data.draw(st.tuples(nests(4), st.sampled_from(Mode), OPTIONS))
    space = small(build_space(tree, mode, options))
    restrictions = data.draw(restrictions_of(space))
    assume(all(any(restrictions.keeps(v, n) for n in d) for v, d in space.variables))
    found = explain_conflict(space, restrictions)
    assert (found is None) == bool(kept(space, restrictions))
    if found is not None:
        assert found.minimal
        assert_minimal(space, found.parts)


@settings(SLOW, max_examples=cases(40, 100))
@given(st.lists(PREDICATES, min_size=1, max_size=4), st.booleans(), st.data())
def test_explanations_of_arithmetic_are_minimal(predicates, tables: bool, data: st.DataObject):
    constraints = [space_of(predicate).constraints[0] for predicate in predicates]
    space = Space(tuple(DOMAINS.items()), tuple(constraints))
    restrictions = data.draw(st.one_of(st.just(Restrictions()), restrictions_of(space)))
    assume(all(any(restrictions.keeps(v, n) for n in d) for v, d in space.variables))
    with pytest.MonkeyPatch.context() as patch:
        if not tables:
            patch.setattr(lowering, "TABLE_ROWS", 0)
        found = explain_conflict(space, restrictions)
    assert (found is None) == bool(kept(space, restrictions))
    if found is not None:
        assert found.minimal
        assert_minimal(space, found.parts)
