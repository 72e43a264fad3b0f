"""Samples are uniform over what was counted: chi-square on small spaces, exact beyond 64 bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random

import pytest

from mapper.ast_model.nodes import Relation
from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    ParameterVariable,
    Variable,
    any_of,
    compare,
    divides,
    member,
    multiply,
)
from mapper.constraint_rules.rule import Constraint, Mode, Provenance
from mapper.solver.counting import count_assignments, count_mappings
from mapper.solver.diagram.compile import compile_space
from mapper.solver.joint import JointSpace
from mapper.solver.sampling import Measure, sample
from mapper.solver.solutions import solutions_of
from mapper.solver.space import Space, build_space
from tests.unit.constraint_rules.nests import listing_3

P, Q = ParameterVariable("p"), ParameterVariable("q")
Row = tuple[int, ...]


def required(predicate) -> Constraint:
    return Constraint("t", "t", (), predicate, Provenance("t", ""), None, "", "")


def joint() -> Space:
    """Codes, sizes and two parameters, so skewed that a careless draw would show."""
    space = build_space(listing_3(), Mode.STRICT)
    size = LocalSizeVariable(listing_3().name, 0)
    first = next(v for v, _ in space.variables if isinstance(v, CodeVariable))
    kept = tuple(
        (v, (1, 2, 4)) if v == size else (v, (1,)) if isinstance(v, LocalSizeVariable) else (v, d)
        for v, d in space.variables
    )
    extra = (
        required(divides(P, 12)),
        required(compare(Relation.LE, multiply(P, Q, size), 12)),
        required(any_of(member(first, {20, 30}), compare(Relation.EQ, P, 1))),
    )
    variables = (*kept, (P, (1, 2, 3, 5, 6)), (Q, (1, 2, 3)))
    return Space(variables, (*space.constraints, *extra))


def chi_square(drawn: Iterable[Row], expected: dict[Row, float]) -> tuple[float, int]:
    """The statistic and its degrees of freedom; every draw must be among the expected."""
    counts = Counter(drawn)
    assert set(counts) <= set(expected)
    return sum((counts[row] - e) ** 2 / e for row, e in expected.items()), len(expected) - 1


def assert_uniform(drawn: list[Row], expected: dict[Row, float]) -> None:
    assert min(expected.values()) >= 5, "too few draws for the test to mean anything"
    statistic, freedom = chi_square(drawn, expected)
    # Mean and standard deviation of chi-square; 5 of them are beyond any chance.
    assert abs(statistic - freedom) < 5 * (2 * freedom) ** 0.5


def draws(draw: Callable[[Random], dict[Variable, int] | None], number: int) -> list[Row]:
    random = Random(20261121)
    found: list[Row] = []
    while len(found) < number:
        assignment = draw(random)
        if assignment is not None:
            found.append(tuple(assignment.values()))
    return found


def all_rows(space: Space) -> list[Row]:
    return [tuple(a.values()) for a in sample(space, 100_000, 1, measure=Measure.ASSIGNMENTS)]


def test_assignments_of_codes_parameters_and_sizes_are_equally_likely():
    space = joint()
    solutions = solutions_of(space)
    assert isinstance(solutions, JointSpace)
    rows = all_rows(space)
    assert len(rows) == count_assignments(space) > 100
    number = 20 * len(rows)
    assert_uniform(draws(solutions.draw_joint, number), dict.fromkeys(rows, number / len(rows)))


def test_mappings_are_equally_likely_and_values_within_a_mapping_are_too():
    space = joint()
    rows = all_rows(space)
    codes = [i for i, (v, _) in enumerate(space.variables) if isinstance(v, CodeVariable)]
    values_of = Counter(tuple(row[i] for i in codes) for row in rows)
    assert len(values_of) == count_mappings(space).mappings
    assert len(set(values_of.values())) > 1, "all mappings have as many values: nothing to tell"
    number = 40 * len(rows)
    expected = {
        row: number / len(values_of) / values_of[tuple(row[i] for i in codes)] for row in rows
    }
    assert_uniform(draws(solutions_of(space).draw_mapping, number), expected)


def test_solutions_of_a_space_without_codes_are_equally_likely():
    variables = ((P, tuple(range(1, 9))), (Q, tuple(range(1, 9))))
    space = Space(variables, (required(compare(Relation.LE, multiply(P, Q), 12)),))
    rows = all_rows(space)
    number = 200 * len(rows)
    table = compile_space(space).sample(number, seed=3)
    drawn = [tuple(a.values()) for a in table.assignments()]
    assert_uniform(drawn, dict.fromkeys(rows, number / len(rows)))


def test_choices_of_several_without_repetition_are_equally_likely():
    space = Space(((P, (1, 2, 3, 4)),), ())
    diagram = compile_space(space)
    drawn = [
        tuple(sorted(a[P] for a in diagram.sample_distinct(2, seed).assignments()))
        for seed in range(3000)
    ]
    pairs = [(a, b) for a in range(1, 5) for b in range(a + 1, 5)]
    assert_uniform(drawn, dict.fromkeys(pairs, 500.0))


def test_counts_beyond_64_bits_are_exact_and_drawn_from():
    names = [ParameterVariable(f"v{i}") for i in range(30)]
    variables = tuple((name, tuple(range(1, 11))) for name in names)
    pairs = tuple(required(divides(a, b)) for a, b in zip(names[::2], names[1::2], strict=True))
    space = Space(variables, pairs)
    one_pair = sum(b % a == 0 for a in range(1, 11) for b in range(1, 11))
    diagram = compile_space(space)
    assert diagram.count == one_pair**15 > 10**20
    drawn = diagram.sample(2000, seed=5).assignments()
    assert all(a[names[1]] % a[names[0]] == 0 for a in drawn)
    expected = {(a, b): 2000 / one_pair for a in range(1, 11) for b in range(1, 11) if b % a == 0}
    assert_uniform([(a[names[-2]], a[names[-1]]) for a in drawn], expected)


@pytest.mark.parametrize("measure", Measure)
def test_one_seed_gives_one_sequence(measure: Measure):
    space = joint()
    first, again, other = (
        [tuple(a.values()) for a in sample(space, 20, seed, measure=measure)] for seed in (1, 1, 2)
    )
    assert first == again != other
