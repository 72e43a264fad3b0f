"""Going from solution to solution of a space that suits a device."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from random import Random

import pytest

from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    ParameterVariable,
    Variable,
)
from mapper.constraint_rules.rule import Mode
from mapper.pipeline import derive_space
from mapper.profiles import load_profile
from mapper.solver.enumeration import enumerate_assignments
from mapper.solver.factored.neighbours import MOST_LOOKED_AT, Neighbours
from mapper.solver.factored.suited import SuitedSpace
from mapper.solver.space import Space, check
from mapper.tuning_space.where import with_where
from nestmap.tuning.sketch_subjects import sketched_subjects, with_suits
from tests.unit.tuning.test_sketch_search import PRODUCT

POCL, H200 = load_profile("pocl"), load_profile("h200")
Solution = Mapping[Variable, int]


def space_of(sketch: str, *where: str) -> Space:
    (subject,) = sketched_subjects(PRODUCT, POCL, [sketch])
    space = derive_space(subject, Mode.STRICT, POCL, with_suits(subject, DEFAULT_OPTIONS))
    return with_where(space, where)


def codes_of(solution: Solution) -> dict[Variable, int]:
    return {v: value for v, value in solution.items() if isinstance(v, CodeVariable)}


@pytest.mark.parametrize("sketch", ["tile-packed-column", "blocks-column"])
def test_neighbours_are_all_solutions_that_keep_codes_and_what_is_not_freed(sketch: str) -> None:
    pins = ("chunk_c == 8", "own_row == 4", "lanes_column == 4")
    space = space_of(sketch, *pins)
    known: dict[tuple[int, ...], dict[Variable, int]] = {
        tuple(s.values()): s for s in enumerate_assignments(space, limit=500)
    }
    neighbours, random = Neighbours(space), Random(2)
    moved = 0
    for _ in range(8):
        solution = random.choice(list(known.values()))
        free = neighbours.free(solution)
        freed = random.sample(free, min(2, len(free)))
        kept = [name for name in free if name not in freed]
        wanted = {
            key for key, other in known.items()
            if other != solution and codes_of(other) == codes_of(solution)
            and all(other[name] == solution[name] for name in kept)
        }  # fmt: skip
        found = neighbours.near(solution, freed, 10_000, random)
        moved += len(found)
        assert {tuple(s.values()) for s in found} >= wanted
        assert all(list(s) == list(solution) and not check(space, s) for s in found)
        assert all(s[name] == solution[name] for s in found for name in kept)
        assert len({tuple(s.values()) for s in found}) == len(found)
        some = neighbours.near(solution, freed, 2, random)
        assert len(some) == min(2, len(found)) and all(s in found for s in some)
    assert moved > 8


def test_where_nothing_else_fits_there_is_no_neighbour() -> None:
    space, random = space_of("tile-packed-column"), Random(4)
    neighbours = Neighbours(space)
    solution = SuitedSpace(space).draw_joint(random)
    assert solution is not None
    assert neighbours.near(solution, (), 5, random) == []


def test_sizes_of_groups_follow_and_are_not_freed() -> None:
    (subject,) = sketched_subjects(PRODUCT, H200, ["blocks-local-column"])
    options = with_suits(subject, DEFAULT_OPTIONS)
    space = derive_space(subject, Mode.STRICT, H200, options)
    solution = SuitedSpace(space).draw_joint(Random(4))
    assert solution is not None
    free = Neighbours(space).free(solution)
    follows = [name for name, domain in space.variables if len(domain) > 1 and name not in free]
    assert {name for name in follows if isinstance(name, LocalSizeVariable)} == {
        LocalSizeVariable("c", dimension) for dimension in range(3)
    }
    assert {ParameterVariable("tile_row"), ParameterVariable("chunk_c")} <= set(free)


def test_codes_of_another_solution_are_taken_where_the_values_allow_them() -> None:
    space, random = space_of("blocks-packed-column"), Random(5)
    neighbours, solved = Neighbours(space), SuitedSpace(space)
    taken = 0
    for _ in range(60):
        one, other = solved.draw_joint(random), solved.draw_joint(random)
        assert one is not None and other is not None
        made = neighbours.recoded(one, other)
        if made is None:
            continue
        taken += made != one
        assert codes_of(made) == codes_of(other) and not check(space, made)
        assert all(made[name] == one[name] for name in neighbours.free(made))
        assert neighbours.recoded(one, one) == one
    assert taken


def test_no_more_is_freed_than_there_is_time_to_look_at() -> None:
    space, random = space_of("blocks-packed-column"), Random(6)
    neighbours, solution = Neighbours(space), SuitedSpace(space).draw_joint(random)
    assert solution is not None
    free, domains = neighbours.free(solution), space.domains
    assert prod(len(domains[name]) for name in free) > MOST_LOOKED_AT
    found = neighbours.near(solution, free, 1000, random)
    assert found and any(all(s[name] == solution[name] for s in found) for name in free)
