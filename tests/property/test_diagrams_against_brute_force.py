"""Diagrams hold exactly the solutions that a search over all values finds."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mapper.ast_model.nest import Nest
from mapper.constraint_rules.predicate import Predicate, all_of
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.solver.diagram.compile import compile_arithmetic, compile_codes, compile_space
from mapper.solver.diagram.events import NotBooleanError
from mapper.solver.diagram.factors import Factors
from mapper.solver.diagram.layers import Diagram
from mapper.solver.limits import Watch
from mapper.solver.space import build_space
from tests.effort import cases
from tests.property.test_solver_against_brute_force import (
    OPTIONS,
    PREDICATES,
    brute_force,
    nests,
    small,
    space_of,
)

PATIENT = [HealthCheck.too_slow, HealthCheck.filter_too_much]


def assert_same(diagram: Diagram | Factors, expected: set[tuple[int, ...]]) -> None:
    table = diagram.table()
    rows = [tuple(assignment.values()) for assignment in table.assignments()]
    assert diagram.count == len(rows) == len(set(rows))
    assert set(rows) == expected


@settings(max_examples=cases(60, 150), suppress_health_check=PATIENT)
@given(st.lists(PREDICATES, min_size=1, max_size=3))
def test_arithmetic_diagrams_hold_all_solutions_and_no_others(predicates: list[Predicate]) -> None:
    space = space_of(all_of(*predicates))
    expected = brute_force(space)
    assert_same(compile_arithmetic(space, Watch()), expected)
    try:
        by_codes = compile_codes(space, Watch())
    except NotBooleanError:
        return
    assert_same(by_codes, expected)


@settings(max_examples=cases(25, 60), suppress_health_check=PATIENT)
@given(nests(), st.sampled_from(Mode), OPTIONS)
def test_diagrams_of_nests_hold_all_mappings(tree: Nest, mode: Mode, options: RuleOptions) -> None:
    space = small(build_space(tree, mode, options))
    expected = brute_force(space)
    assert_same(compile_space(space), expected)
    assert_same(compile_arithmetic(space, Watch()), expected)
