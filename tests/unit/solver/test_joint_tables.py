"""Counting over tables that classes share: as by a diagram for each class, and as by listing."""

from __future__ import annotations

from collections import Counter
from itertools import product
from random import Random

import numpy as np
import pytest

from mapper.ast_model.nodes import Relation
from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    ParameterVariable,
    Predicate,
    Variable,
    any_of,
    compare,
    divides,
    floor_divide,
    member,
    multiply,
    remainder,
)
from mapper.constraint_rules.rule import Constraint, Mode, Provenance, RuleOptions
from mapper.layer_spec import VGG16
from mapper.pipeline import derive_space, subject_of_layer
from mapper.profiles import load_profile
from mapper.solver import joint_part, parameter_table, size_sets
from mapper.solver.counting import count_assignments, count_mappings
from mapper.solver.demands import DemandReader, parameter_terms
from mapper.solver.joint import JointSpace
from mapper.solver.limits import Watch
from mapper.solver.sampling import Measure, sample
from mapper.solver.size_sets import SizeCounts, SizeSets
from mapper.solver.solutions import solutions_of
from mapper.solver.space import Space, check

P, Q = ParameterVariable("p"), ParameterVariable("q")
X, Y, Z = (LocalSizeVariable("k", dimension) for dimension in range(3))


def required(predicate: Predicate) -> Constraint:
    return Constraint("t", "t", (), predicate, Provenance("t", ""), None, "", "")


def at_most(left, right) -> Predicate:
    return compare(Relation.LE, left, right)


# Sizes from sets


@pytest.mark.parametrize("part", [16, 1 << 60], ids=["kept", "forgotten"])
def test_sizes_from_sets_are_counted_as_by_listing(monkeypatch, part):
    monkeypatch.setattr(size_sets, "_PAIRS", part)
    free = LocalSizeVariable("other", 0)
    entries = [(X, (1, 2, 3, 4, 6)), (Y, (2,)), (Z, (1, 2, 4)), (free, (1, 3))]
    product_of = multiply(X, Y, Z)
    sets = SizeSets(entries)
    counts = SizeCounts(entries, [at_most(product_of, 12), at_most(Z, 3)], sets, Watch())
    random = Random(1)
    for _ in range(3):  # more sets than before each time
        truths = np.array([[random.random() < 0.7 for _ in sets.values] for _ in range(9)])
        numbers = sets.numbers(truths)
        rows = [[random.randrange(9) for _ in entries] for _ in range(50)]
        expected = [
            sum(
                x * y * z <= 12
                and z <= 3
                and all(
                    truths[s, sets.values.index(v)] for s, v in zip(row, (x, y, z, f), strict=True)
                )
                for x, y, z, f in product(*(domain for _, domain in entries))
            )
            for row in rows
        ]
        columns = {
            name: numbers[np.array([row[place] for row in rows])]
            for place, (name, _) in enumerate(entries)
        }
        assert counts.of(columns, len(rows)).tolist() == expected
        assert sum(expected) > 0


def test_sizes_from_sets_are_drawn_equally_likely():
    entries = [(X, (1, 2, 3, 4)), (Y, (1, 2, 3, 4)), (Z, (1, 2))]
    sets = SizeSets(entries)
    counts = SizeCounts(entries, [at_most(multiply(X, Y, Z), 8)], sets, Watch())
    everything, odd = sets.numbers(np.array([[True] * 4, [True, False, True, False]])).tolist()
    wanted = {X: odd, Y: everything, Z: everything}
    valid = [(x, y, z) for x in (1, 3) for y in (1, 2, 3, 4) for z in (1, 2) if x * y * z <= 8]
    random = Random(2)
    drawn = Counter(
        tuple(found[name] for name in (X, Y, Z))
        for found in (counts.draw(wanted, random) for _ in range(200 * len(valid)))
    )
    assert set(drawn) == set(valid)
    statistic = sum((drawn[row] - 200) ** 2 / 200 for row in valid)
    assert abs(statistic - len(valid) + 1) < 5 * (2 * len(valid)) ** 0.5


# What classes have in common


def test_demands_are_equal_whatever_dimension_they_are_made_of():
    def of(first, second):
        return DemandReader([X, Y]).read(
            [at_most(X, 64), at_most(multiply(X, Y), 64)],
            [divides(first, floor_divide(P, Q)), at_most(second, P), compare(Relation.EQ, P, 4)],
        )

    one, other = of(X, Y), of(Y, X)
    assert one is not None and other is not None
    assert one.sizes == other.sizes[::-1] and one.sizes[0] != one.sizes[1]
    assert (one.parameters, one.together) == (other.parameters, other.together)
    assert len(one.together) == 2, "limits of a dimension are no demand of a class"
    assert parameter_terms(one.sizes[0]) == (floor_divide(P, Q),)


def test_a_condition_of_parameters_on_several_sizes_is_no_demand():
    assert DemandReader([X, Y]).read([], [at_most(multiply(X, Y), P)]) is None
    assert DemandReader([X, Y]).read([], [at_most(multiply(X, Y), 8)]) is not None


def test_sums_beyond_what_floats_and_64_bits_hold_are_exact():
    groups = np.array([0, 1, 0, 1, 1])
    for scale in (1, 2**52 + 1, 2**60 + 1, 2**70 + 1):
        weights = np.array([scale, 1, scale, 2, 3], np.int64 if scale < 2**62 else object)
        total = parameter_table.exact_sums(groups, weights, 2, 5 * scale)
        assert [int(number) for number in total] == [2 * scale, 6]


# Whole spaces


def small() -> Space:
    """A space in which two codes choose what sizes must divide and fit into."""
    a, b = CodeVariable(1), CodeVariable(2)
    wanted = [
        divides(Q, P),
        at_most(multiply(X, Y, Z), 16),
        at_most(Z, 2),
        any_of(member(a, {0}), divides(X, floor_divide(P, Q))),
        any_of(member(a, {0, 1}), compare(Relation.EQ, remainder(Q, Y), 0)),
        any_of(member(a, {2}), at_most(Z, 1), at_most(multiply(P, Q), 12)),
        any_of(member(b, {0}), at_most(Y, P), at_most(Y, Q)),
        any_of(member(b, {1}), divides(2, P)),
    ]
    sizes = tuple((name, (1, 2, 3, 4)) for name in (X, Y, Z))
    variables = ((a, (0, 1, 2)), (b, (0, 1)), (P, (1, 2, 3, 4, 6, 12)), (Q, (1, 2, 3, 4)), *sizes)
    return Space(variables, tuple(map(required, wanted)))


def listed(space: Space) -> list[tuple[int, ...]]:
    names = [name for name, _ in space.variables]
    rows = product(*(domain for _, domain in space.variables))
    return [row for row in rows if not check(space, dict(zip(names, row, strict=True)))]


WAYS = {
    "as it is": {},
    "no tables": {"_MOST_ROWS": 0},
    "by sorting": {"_DENSE": 0, "_DENSE_FLOOR": 0},
    "by columns": {"_LARGEST_KEY": 0},
    "in pieces": {"_CHUNK": 7},
}


@pytest.mark.parametrize("draws", [(), (1,), (1, 40)])
def test_mappings_are_all_counted_however_many_draws_show_them(monkeypatch, draws):
    monkeypatch.setattr(joint_part, "_DRAWS", draws)
    space = small()
    assert count_mappings(space).mappings == len({row[:2] for row in listed(space)})


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_count_and_draw_finds_what_listing_finds(monkeypatch, way):
    for name, value in WAYS[way].items():
        monkeypatch.setattr(parameter_table, name, value)
    # Nothing is kept for longer than it is used.
    for name in ("_TABLES", "_COMBINATIONS", "_COUNTS", "_DIAGRAMS"):
        monkeypatch.setattr(joint_part, name, 1 << 60)
    space = small()
    expected = listed(space)
    assert count_assignments(space) == len(expected) > 1000
    assert count_mappings(space).mappings == len({row[:2] for row in expected})
    drawn = [tuple(a.values()) for a in sample(space, 40, 3, measure=Measure.ASSIGNMENTS)]
    assert len(set(drawn)) == 40 and set(drawn) <= set(expected)


def test_a_program_is_counted_over_tables_as_by_diagrams(monkeypatch):
    subject = subject_of_layer(VGG16["vgg16/28"], "direct")
    whole = derive_space(subject, Mode.STRICT, load_profile("mali-g72"), RuleOptions())
    # A valid assignment with a few other values for everything.
    valid = next(sample(whole, 1, 5))
    random = Random(5)

    def some(name: Variable, domain: tuple[int, ...]) -> tuple[int, ...]:
        if isinstance(name, CodeVariable):
            return tuple(sorted({valid[name], *random.sample(domain, min(len(domain), 5))}))
        return tuple(sorted({valid[name], *domain[:2]}))

    space = Space(tuple((n, some(n, d)) for n, d in whole.variables), whole.constraints)
    over_tables = count_assignments(space)
    monkeypatch.setattr(parameter_table, "_MOST_ROWS", 0)
    assert over_tables == count_assignments(space) > 1000


def test_a_block_of_more_than_16384_classes_is_taken_apart_too():
    codes = [CodeVariable(place) for place in range(15)]
    p = ParameterVariable("p")
    conditions = [any_of(member(c, {0}), compare(Relation.NE, p, i)) for i, c in enumerate(codes)]
    some = any_of(*(member(code, {1}) for code in codes))
    variables = (*((code, (0, 1)) for code in codes), (p, tuple(range(20))))
    space = Space(variables, tuple(map(required, [*conditions, some])))
    solutions = solutions_of(space)
    assert isinstance(solutions, JointSpace)
    assert solutions.relaxed_mappings == 2**15 - 1
    drawn = list(sample(space, 5, 1))
    assert len(drawn) == 5 and not any(check(space, assignment) for assignment in drawn)
