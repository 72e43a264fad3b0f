"""Codes, parameters and local sizes together: counted and drawn as a search over all says."""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from mapper.ast_model.nest import Nest
from mapper.ast_model.nodes import Relation
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
    member,
    multiply,
    negate,
    select,
)
from mapper.constraint_rules.rule import Constraint, Mode, Provenance, RuleOptions
from mapper.solver.counting import Mappings, count_assignments, count_mappings
from mapper.solver.diagram.events import NotBooleanError
from mapper.solver.joint import JointSpace
from mapper.solver.sampling import Measure, sample
from mapper.solver.solutions import WholeSpace, solutions_of
from mapper.solver.space import Space, build_space
from tests.effort import cases
from tests.property.test_solver_against_brute_force import OPTIONS, brute_force, nests, small

P, Q = ParameterVariable("p"), ParameterVariable("q")
DOMAINS: dict[Variable, tuple[int, ...]] = {P: (1, 2, 3, 4), Q: (0, 1, 2, 6)}
PATIENT = [HealthCheck.too_slow, HealthCheck.filter_too_much]


@st.composite
def mixed(draw: st.DrawFn) -> Space:
    """The space of a nest, with constraints that tie its codes to parameters and sizes."""
    tree: Nest = draw(nests(limit=3))
    options: RuleOptions = draw(OPTIONS)
    space = small(build_space(tree, Mode.STRICT, options))
    codes = [v for v, _ in space.variables if isinstance(v, CodeVariable)]
    size = LocalSizeVariable("k", 0)
    terms = st.sampled_from([P, Q, size, add(P, Q), multiply(size, P), multiply(P, Q, size)])
    atoms = st.one_of(
        st.builds(compare, st.sampled_from([Relation.LE, Relation.NE, Relation.EQ]), terms,
                  st.integers(0, 8)),
        st.builds(divides, st.sampled_from([P, Q, size]), st.integers(1, 12)),
        st.builds(compare, st.just(Relation.LE), st.sampled_from([P, Q, size]), terms),
    )  # fmt: skip
    about_codes = st.builds(
        member, st.sampled_from(codes), st.sets(st.sampled_from([0, 1, 10, 11, 20, 30]), min_size=1)
    )

    def chosen() -> Predicate:
        """A comparison of a product in which codes choose a factor."""
        condition = draw(about_codes)
        product = multiply(P, select(condition, Q, 1), size)
        return compare(Relation.LE, product, draw(st.integers(1, 20)))

    literals = st.one_of(atoms, atoms, about_codes, st.builds(negate, about_codes))
    groups = st.builds(lambda parts: all_of(*parts), st.lists(literals, min_size=1, max_size=3))
    extra: list[Predicate] = []
    for _ in range(draw(st.integers(1, 3))):
        alternatives = draw(st.lists(groups, min_size=1, max_size=3))
        extra.append(any_of(*alternatives))
    if draw(st.booleans()):
        extra.append(chosen())
    constraints = tuple(
        Constraint(f"t/{i}", "t", (), predicate, Provenance("t", ""), None, "", "")
        for i, predicate in enumerate(extra)
    )
    variables = (*space.variables, *DOMAINS.items())
    return Space(variables, (*space.constraints, *constraints))


def codes_of(space: Space, rows: set[tuple[int, ...]]) -> set[tuple[int, ...]]:
    places = [i for i, (v, _) in enumerate(space.variables) if isinstance(v, CodeVariable)]
    return {tuple(row[i] for i in places) for row in rows}


@settings(max_examples=cases(25, 60), suppress_health_check=PATIENT)
@given(mixed())
def test_counts_and_mappings_are_those_of_a_search_over_everything(space: Space) -> None:
    expected = brute_force(space)
    mappings = codes_of(space, expected)
    assert count_assignments(space) == len(expected)
    assert count_mappings(space).mappings == len(mappings)
    found = Mappings(space)
    listed = [tuple(mapping.values()) for mapping in found]
    assert found.complete and len(listed) == len(set(listed)) and set(listed) == mappings


@settings(max_examples=cases(10, 20), suppress_health_check=PATIENT)
@given(mixed(), st.integers(0, 9), st.sampled_from(Measure))
def test_samples_are_valid_distinct_and_reach_every_assignment(
    space: Space, seed: int, measure: Measure
) -> None:
    expected = brute_force(space)
    assume(0 < len(expected) <= 60)
    drawn = [tuple(a.values()) for a in sample(space, 100, seed, measure=measure)]
    assert len(drawn) == len(set(drawn)) and set(drawn) == expected


@settings(max_examples=cases(15, 30), suppress_health_check=PATIENT)
@given(mixed())
def test_taking_a_space_apart_changes_nothing(space: Space) -> None:
    try:
        parts = JointSpace(space)
    except NotBooleanError:
        assert isinstance(solutions_of(space), WholeSpace)
        return
    draw = parts.draw_joint(Random(1))
    assert (draw is None) == (parts.count_joint() == 0)
