"""Strata partition a space; one mapping is left of those that differ by permuted dimensions."""

from __future__ import annotations

from functools import cache
from itertools import permutations

from mapper.constraint_rules.predicate import CodeVariable
from mapper.constraint_rules.rule import Mode
from mapper.schedule import ScheduleCode
from mapper.solver.counting import Mappings, count_mappings
from mapper.solver.space import Space, build_space
from mapper.solver.strata import by_dimensions, up_to_symmetry
from tests.unit.constraint_rules.nests import listing_3, published_tree


def codes_of(space: Space) -> list[CodeVariable]:
    return [v for v, _ in space.variables if isinstance(v, CodeVariable)]


def rows(space: Space) -> set[tuple[int, ...]]:
    return {tuple(mapping.values()) for mapping in Mappings(space)}


def permuted(row: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(permuted_code(code, order) for code in row)


@cache
def permuted_code(code: int, order: tuple[int, ...]) -> int:
    dimension = ScheduleCode(code).dimension
    return code if dimension is None else code - dimension + order[dimension]


def test_strata_are_disjoint_and_together_the_whole():
    space = build_space(listing_3(), Mode.PAPER)
    parts = [rows(part) for _, part in by_dimensions(space)]
    assert sum(map(len, parts)) == 40
    assert set().union(*parts) == rows(space)


def test_a_stratum_uses_just_its_dimensions():
    space = build_space(listing_3(), Mode.PAPER)
    for dimensions, part in by_dimensions(space):
        for row in rows(part):
            used = {ScheduleCode(code).dimension for code in row} - {None}
            assert used == set(dimensions)


def test_the_strata_of_the_published_tree_sum_to_its_count():
    space = build_space(published_tree(), Mode.PAPER)
    counts = {d: count_mappings(part).mappings for d, part in by_dimensions(space)}
    by_number = {n: sum(c for d, c in counts.items() if len(d) == n) for n in range(4)}
    assert by_number == {0: 0, 1: 432, 2: 12_492, 3: 28_170}
    assert counts[(0, 1)] == counts[(0, 2)] == counts[(1, 2)]


def test_one_mapping_is_left_of_each_orbit():
    space = build_space(published_tree(), Mode.PAPER)
    everything = rows(space)
    left = rows(up_to_symmetry(space, [codes_of(space)]))
    orders = list(permutations(range(3)))
    orbits = {frozenset(permuted(row, order) for order in orders) for row in everything}
    assert all(orbit <= everything for orbit in orbits), "the space is not symmetric"
    assert len(left) == len(orbits)
    assert all(len(orbit & left) == 1 for orbit in orbits)
