"""What CP-SAT finds is what a search over all values finds, for nests and for predicates."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mapper.ast_model.index_expr import const
from mapper.ast_model.nest import Nest, NestMap
from mapper.ast_model.nodes import Relation
from mapper.ast_model.types import Memory
from mapper.constraint_rules.compiled import CompiledPredicates
from mapper.constraint_rules.evaluation import (
    evaluate,
    evaluate_partial,
    evaluate_term,
    term_bounds,
)
from mapper.constraint_rules.predicate import (
    TRUE,
    CodeVariable,
    IntTerm,
    LocalSizeVariable,
    ParameterVariable,
    Predicate,
    Variable,
    add,
    all_of,
    any_of,
    compare,
    floor_divide,
    maximum,
    member,
    multiply,
    negate,
    remainder,
    select,
    variables,
)
from mapper.constraint_rules.rewriting import bind
from mapper.constraint_rules.rule import Constraint, Mode, Provenance, RuleOptions
from mapper.solver import lowering
from mapper.solver.counting import count_mappings
from mapper.solver.enumeration import enumerate_assignments
from mapper.solver.sampling import sample
from mapper.solver.space import Space, build_space

RELATIONS = [relation for relation in Relation if relation is not Relation.DIVIDES]


@st.composite
def nests(draw: st.DrawFn, limit: int = 5) -> Nest:
    """Forests of up to five maps, with any memories, perfect nesting where it can be."""
    parents = [draw(st.integers(-1, i - 1)) for i in range(draw(st.integers(1, limit)))]

    def build(index: int) -> NestMap:
        inner = [i for i, parent in enumerate(parents) if parent == index]
        parent = parents[index]
        alone = parent >= 0 and parents.count(parent) == 1
        return NestMap(
            index,
            const(draw(st.integers(1, 4))),
            frozenset(draw(st.sets(st.sampled_from(list(Memory)), min_size=1, max_size=2))),
            draw(st.sampled_from(list(Memory))),
            alone and draw(st.booleans()),
            tuple(build(i) for i in inner),
            draw(st.sampled_from([(), (), (Memory.LOCAL,), (Memory.PRIVATE,)])) if inner else (),
        )

    roots = tuple(build(i) for i, parent in enumerate(parents) if parent == -1)
    return Nest("k", roots, draw(st.sampled_from([(), (), (), (Memory.PRIVATE,)])))


def small(space: Space) -> Space:
    """The space with few enough values to go through all of them."""
    codes = sum(isinstance(variable, CodeVariable) for variable, _ in space.variables)
    dimensions = {1: 3, 2: 3, 3: 3, 4: 2, 5: 1}[codes]

    def kept(variable: Variable, domain: tuple[int, ...]) -> tuple[int, ...]:
        match variable:
            case CodeVariable():
                return tuple(v for v in domain if v < 10 or v % 10 < dimensions)
            case LocalSizeVariable(_, dimension):
                return (1, 3) if dimension == 0 else (1,)
            case _:
                return domain

    return Space(tuple((v, kept(v, d)) for v, d in space.variables), space.constraints)


def brute_force(space: Space) -> set[tuple[int, ...]]:
    names = [variable for variable, _ in space.variables]
    # Cheap constraints first, so that most rows are refused early.
    predicates = sorted((c.predicate for c in space.constraints), key=lambda p: len(str(p)))
    found: set[tuple[int, ...]] = set()
    for row in product(*(domain for _, domain in space.variables)):
        assignment = dict(zip(names, row, strict=True))
        if all(evaluate(predicate, assignment) for predicate in predicates):
            found.add(row)
    return found


OPTIONS = st.builds(RuleOptions, st.booleans(), st.booleans(), free_grid=st.booleans())


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(nests(), st.sampled_from(Mode), OPTIONS)
def test_nests(tree: Nest, mode: Mode, options: RuleOptions):
    space = small(build_space(tree, mode, options))
    expected = brute_force(space)
    with enumerate_assignments(space) as found:
        given_rows = [tuple(assignment.values()) for assignment in found]
    assert found.complete and len(given_rows) == len(set(given_rows))
    assert set(given_rows) == expected
    codes = [i for i, (v, _) in enumerate(space.variables) if isinstance(v, CodeVariable)]
    mappings = {tuple(row[i] for i in codes) for row in expected}
    assert count_mappings(space).mappings == len(mappings)
    if expected:
        drawn = [tuple(a.values()) for a in sample(space, 3, seed=1)]
        assert len(set(drawn)) == min(3, len(expected)) and set(drawn) <= expected


X, Y, Z = ParameterVariable("x"), ParameterVariable("y"), LocalSizeVariable("k", 0)
DOMAINS: dict[Variable, tuple[int, ...]] = {
    X: (0, 1, 2, 3, 6),
    Y: (1, 2, 4, 5),
    Z: tuple(range(-3, 36)),  # more values than are modelled one by one
}
VARIABLES = st.sampled_from([X, Y, Z])

PREDICATES = st.deferred(
    lambda: st.one_of(
        st.builds(member, VARIABLES, st.sets(st.integers(-3, 8), max_size=4)),
        st.builds(compare, st.sampled_from(RELATIONS), TERMS, TERMS),
        st.builds(lambda parts: all_of(*parts), st.lists(PREDICATES, max_size=3)),
        st.builds(lambda parts: any_of(*parts), st.lists(PREDICATES, max_size=3)),
        st.builds(negate, PREDICATES),
    )
)
TERMS = st.deferred(
    lambda: st.one_of(
        VARIABLES,
        st.integers(-4, 9),
        st.builds(lambda parts: add(*parts), st.lists(TERMS, min_size=1, max_size=3)),
        st.builds(lambda parts: multiply(*parts), st.lists(TERMS, min_size=1, max_size=2)),
        st.builds(floor_divide, TERMS, TERMS),
        st.builds(remainder, TERMS, TERMS),
        st.builds(select, PREDICATES, TERMS, TERMS),
        st.builds(lambda parts: maximum(*parts), st.lists(TERMS, min_size=1, max_size=3)),
    )
)


def space_of(predicate: Predicate) -> Space:
    constraint = Constraint("t/1", "t", (), predicate, Provenance("t", ""), None, "", "")
    return Space(tuple(DOMAINS.items()), (constraint,))


def solutions(space: Space) -> list[tuple[int, ...]]:
    with enumerate_assignments(space) as found:
        rows = [tuple(assignment.values()) for assignment in found]
    assert found.complete
    return sorted(rows)


@settings(max_examples=60)
@given(PREDICATES, st.booleans())
def test_lowering_means_what_evaluation_means(predicate: Predicate, tables: bool):
    space = space_of(predicate)
    before = lowering.TABLE_ROWS
    lowering.TABLE_ROWS = before if tables else 0
    try:
        assert solutions(space) == sorted(brute_force(space))
    finally:
        lowering.TABLE_ROWS = before


@pytest.mark.parametrize(
    ("term", "limit"),
    [(X, 0), (Y, 1), (multiply(Y, Y), 1), (multiply(X, Y), 0), (add(X, multiply(Y, Y)), 1),
     (add(multiply(X, Y), Y, Y), 2), (maximum(X, Y), 1)],
    ids=str,
)  # fmt: skip
def test_a_limit_that_only_the_least_value_keeps_is_enforced(term: IntTerm, limit: int):
    space = space_of(compare(Relation.LE, term, limit))
    assert solutions(space) == sorted(brute_force(space)) != []


@settings(max_examples=60)
@given(PREDICATES, PREDICATES)
def test_a_literal_is_equivalent_to_its_predicate(first: Predicate, second: Predicate):
    # Equivalence of the two, so that both literals occur with both signs.
    same = any_of(all_of(first, second), all_of(negate(first), negate(second)))
    assert solutions(space_of(same)) == sorted(brute_force(space_of(same)))


@given(PREDICATES, st.data())
def test_partial_knowledge_is_sound(predicate: Predicate, data: st.DataObject):
    full: dict[Variable, int] = {
        name: data.draw(st.sampled_from(domain)) for name, domain in DOMAINS.items()
    }
    known = {name: full[name] for name in full if data.draw(st.booleans())}
    value = evaluate(predicate, full)
    assert evaluate_partial(predicate, known, DOMAINS) in (None, value)
    assert evaluate_partial(predicate, full, DOMAINS) is value
    bound = bind(predicate, known)
    assert not variables(bound) & known.keys()
    assert evaluate(bound, full) is value
    assert (bind(predicate, full) == TRUE) is value
    compiled = CompiledPredicates([predicate], list(full))
    assert compiled.all_hold([tuple(full.values())] * 2) is value


@given(TERMS, st.data())
def test_bounds_hold(term, data: st.DataObject):
    term = add(term)
    full = {name: data.draw(st.sampled_from(domain)) for name, domain in DOMAINS.items()}
    known = {name: full[name] for name in full if data.draw(st.booleans())}
    low, high = term_bounds(term, known, DOMAINS)
    assert low <= evaluate_term(term, full) <= high
