"""Going from solution to solution of a space that suits a device."""

from __future__ import annotations

from random import Random

from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.predicate import CodeVariable
from mapper.constraint_rules.rule import Mode
from mapper.pipeline import derive_space
from mapper.profiles import load_profile
from mapper.solver.factored.suited import SuitedSpace
from mapper.solver.space import Space, check
from nestmap.tuning.part_search import with_fewer_sizes
from nestmap.tuning.sketch_subjects import sketched_subjects, with_suits
from tests.unit.tuning.test_sketch_search import PRODUCT

POCL = load_profile("pocl")


def space_of(sketch: str) -> Space:
    (subject,) = sketched_subjects(PRODUCT, POCL, [sketch])
    return derive_space(subject, Mode.STRICT, POCL, with_suits(subject, DEFAULT_OPTIONS))


def test_a_step_is_a_solution_that_keeps_all_but_what_was_freed() -> None:
    space = space_of("tile-packed-column")
    solved, random = SuitedSpace(space), Random(2)
    moved = 0
    for number in range(40):
        point = solved.draw_point(random)
        assert point is not None
        freed = random.sample(solved.steps, 1 + number % 3)
        other = solved.near(point, freed, random)
        if other is None:
            continue
        moved += other.assignment != point.assignment
        assert not check(space, other.assignment)
        kept = [name for name in solved.steps if name not in freed]
        assert all(other.values[name] == point.values[name] for name in kept)
    assert moved > 10


def test_codes_stay_where_their_class_does() -> None:
    solved, random = SuitedSpace(space_of("tile-packed-column")), Random(3)
    point = solved.draw_point(random)
    assert point is not None
    sizes = [name for name in solved.steps if name in point.assignment]
    for name in sizes:
        other = solved.near(point, [name], random)
        if other is not None:
            codes = [v for v in other.assignment if isinstance(v, CodeVariable)]
            assert all(other.assignment[v] == point.assignment[v] for v in codes)


def test_where_nothing_else_fits_there_is_no_step() -> None:
    solved, random = SuitedSpace(space_of("tile-packed-column")), Random(4)
    point = solved.draw_point(random)
    assert point is not None
    assert solved.near(point, (), random) is None


def test_a_solution_of_a_part_of_the_space_is_gone_on_from() -> None:
    space = space_of("tile-packed-column")
    whole, part, random = SuitedSpace(space), SuitedSpace(with_fewer_sizes(space)), Random(5)
    moved = 0
    for _ in range(20):
        drawn = part.draw_joint(random)
        assert drawn is not None
        point = whole.point_of(drawn)
        assert point is not None and point.assignment == drawn
        other = whole.near(point, random.sample(whole.steps, 2), random)
        if other is not None:
            moved += other.assignment != drawn
            assert not check(space, other.assignment)
    assert moved > 5
