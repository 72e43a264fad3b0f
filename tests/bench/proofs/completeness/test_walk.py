"""The assignments that are walked: all of them, but for permutations of dimensions."""

from __future__ import annotations

from itertools import permutations

from bench.proofs.completeness.walk import Assignment, Grid, assignments, without_lone_threads
from mapper.constraint_rules.predicate import CodeVariable, LocalSizeVariable
from mapper.schedule import ScheduleCode
from tests.unit.kernel_gen.listing1 import assignment, strict_space
from tests.unit.kernel_gen.test_sound_checker import subject_of

ROWS = """program "rows" { param p in {1, 2} size N = 4 size M = 6 input x : [[float]M]N
  kernel out = map#A(r => join(map#B(w => map#C(v => add(v, 1.0), w), split(p, r))), x) }"""
KERNEL_OF = {"A": "out", "B": "out", "C": "out"}


def codes_of(assignment: Assignment) -> tuple[int, ...]:
    return tuple(v for name, v in assignment.items() if isinstance(name, CodeVariable))


def renamed(codes: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(
        code - code % 10 + order[code % 10] if ScheduleCode(code).is_parallel else code
        for code in codes
    )


def test_every_code_is_there_up_to_a_permutation_of_the_dimensions() -> None:
    space = strict_space(subject_of(ROWS))
    grid = Grid(3, local_sizes=((1,), (1,), (1,)), widths=(2, 4, 8, 16))
    walked = {codes_of(a) for a in assignments(space, KERNEL_OF, grid)}
    full = {renamed(codes, order) for codes in walked for order in permutations(range(3))}
    domains = [set(d) for v, d in space.variables if isinstance(v, CodeVariable)]
    assert len(full) == len(domains[0]) * len(domains[1]) * len(domains[2])
    assert all(
        code in domain for codes in full for code, domain in zip(codes, domains, strict=True)
    )
    for codes in walked:
        assert not any(
            renamed(codes, order) in walked - {codes} for order in permutations(range(3))
        )


def test_every_parameter_and_local_size_of_the_grid_is_there_once() -> None:
    space = strict_space(subject_of(ROWS))
    grid = Grid(1, local_sizes=((1, 2, 3),), widths=())
    walked = list(assignments(space, KERNEL_OF, grid))
    assert len({tuple(a.items()) for a in walked}) == len(walked)
    chosen = [a for a in walked if codes_of(a) == (20, 0, 10)]
    sizes = {
        (tuple(v for name, v in a.items() if isinstance(name, LocalSizeVariable)), p)
        for a in chosen
        for p in (list(a.values())[3],)
    }
    assert sizes == {((size, 1, 1), p) for size in (1, 2, 3) for p in (1, 2)}
    # A dimension that no map uses is not gone through.
    assert len([a for a in walked if codes_of(a) == (0, 0, 0)]) == 2


def test_a_local_map_of_one_work_item_is_sequential() -> None:
    space = strict_space(subject_of(ROWS))
    chosen = assignment(space, "A B C", "W0 L0 L1", (2, 1, 1))
    simpler = without_lone_threads(chosen, KERNEL_OF)
    assert codes_of(simpler) == (20, 10, 0)
    assert without_lone_threads(simpler, KERNEL_OF) == simpler
