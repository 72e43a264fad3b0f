"""Solutions of one space in the order in which they are tried: few sizes first, and others near
what was fast."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from mapper.ast_model.text_form import parse
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.predicate import ParameterVariable
from mapper.constraint_rules.rule import Mode
from mapper.layer_spec import LayerSpec
from mapper.pipeline import derive_space, subject_of_program
from mapper.profiles import load_profile
from mapper.solver.factored.suited import SuitedSpace
from mapper.solver.limits import Watch
from mapper.solver.space import Space, check
from mapper.tuning_space.where import with_where
from nestmap.tuning import fewer_sizes
from nestmap.tuning.drawing import Drawn
from nestmap.tuning.fewer_sizes import solved_for_search, with_fewer_sizes
from nestmap.tuning.kernel_parts import KernelPart, kernel_parts
from nestmap.tuning.part_search import PartSearch
from nestmap.tuning.sketch_subjects import layer_in, sketched_subjects, with_suits

POCL = load_profile("pocl")
PROGRAM = parse("""program "product" {
  size K = 24
  size M = 36
  size N = 48
  input a : [[float]K]M
  input b : [[float]N]K
  constant b
  kernel c = map#row(x => join(map#column(y => reduce((acc, k) => fma(k.0, k.1, acc), 0.0,
    zip(x, y)), transpose(b))), a)
}
""")


def part_of(sketch: str, *where: str) -> KernelPart:
    (subject,) = sketched_subjects(subject_of_program(PROGRAM), POCL, [sketch])
    space = derive_space(subject, Mode.STRICT, POCL, with_suits(subject, DEFAULT_OPTIONS))
    (part,) = kernel_parts(subject.require_program(), with_where(space, where))
    return part


def sizes_of(space: Space, name: str) -> set[int]:
    return set(next(d for v, d in space.variables if v == ParameterVariable(name)))


def test_sizes_beside_the_fewer_are_tried_near_what_was_fast_and_nothing_twice() -> None:
    part = part_of("tile-packed-column")
    few = sizes_of(with_fewer_sizes(part.space), "own_row")
    assert few < sizes_of(part.space, "own_row")
    search = PartSearch(part.space, part.cost(POCL), 1)
    tried: list[int] = []
    keys: set[tuple[int, ...]] = set()
    for number in range(160):
        drawn = search.next()
        assert drawn is not None and drawn.key not in keys
        keys.add(drawn.key)
        assert not check(part.space, drawn.assignment)
        tried.append(drawn.assignment[ParameterVariable("own_row")])
        search.tell(drawn, 1.0 + 1.0 / (1 + number))
    assert set(tried) - few


@pytest.mark.parametrize("sketch", ["tile-packed-column", "blocks-column"])
def test_what_is_told_of_late_is_gone_on_from(sketch: str) -> None:
    part = part_of(sketch)
    search = PartSearch(part.space, part.cost(POCL), 3)
    given: list[Drawn] = []
    for _ in range(24):
        drawn = search.next()
        assert drawn is not None
        given.append(drawn)
    for number, drawn in enumerate(given):
        search.tell(drawn, 1.0 + number)
    for _ in range(60):
        drawn = search.next()
        assert drawn is not None and not check(part.space, drawn.assignment)
        search.tell(drawn, 100.0)


def test_all_solutions_of_a_small_space_are_tried() -> None:
    part = part_of("tile-column", "own_row == 2", "own_column == 2", "chunk_c == 6")
    number = SuitedSpace(part.space).count_joint()
    assert 100 < number < 1000
    search = PartSearch(part.space, part.cost(POCL), 1)
    keys: set[tuple[int, ...]] = set()
    while (drawn := search.next()) is not None:
        keys.add(drawn.key)
        search.tell(drawn, 1.0)
    assert len(keys) > 0.9 * number


def test_a_size_that_the_users_constraints_ask_for_is_kept_among_the_fewer() -> None:
    """Of each octave the size that goes with what is said of it, though two divides another."""
    assert 6 not in sizes_of(with_fewer_sizes(part_of("tile-packed-column").space), "chunk_c")
    part = part_of("tile-packed-column", "chunk_c == 6")
    few = with_fewer_sizes(part.space)
    assert 6 in sizes_of(few, "chunk_c") and len(sizes_of(few, "chunk_c")) <= 6
    assert 0 < SuitedSpace(few).count_joint() < SuitedSpace(part.space).count_joint()
    drawn = PartSearch(part.space, part.cost(POCL), 1).next()
    assert drawn is not None
    assert drawn.assignment[ParameterVariable("chunk_c")] == 6


def test_the_fewer_sizes_of_a_map_of_14_are_those_that_leave_no_rest() -> None:
    """Sizes may overhang: not 4 and 8, which two divides more often. The largest stays."""
    layer = LayerSpec(64, 14, 14, 64, pad_top=1, pad_left=1, pad_bottom=1, pad_right=1)
    subject = layer_in(layer, "tile-bordered-packed-filter", POCL)
    space = derive_space(subject, Mode.STRICT, POCL, with_suits(subject, DEFAULT_OPTIONS))
    few = with_fewer_sizes(space)
    for own, rest in (("own_row", "rho_row"), ("own_column", "rho_column")):
        assert {4, 7, 8, 14} < sizes_of(space, own)
        assert sizes_of(few, own) == {1, 2, 7, 14, 16}
        # What a tile lacks goes with sizes.
        assert sizes_of(few, rest) == sizes_of(space, rest) >= {0, 2}


def test_a_space_that_is_too_large_is_searched_with_still_fewer_sizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part = part_of("tile-packed-column")
    monkeypatch.setattr(fewer_sizes, "_MOST_ARCS", 100)
    solved = solved_for_search(part.space, Watch())
    few = with_fewer_sizes(part.space)
    assert 0 < solved.count_joint() < SuitedSpace(few).count_joint()
    for _ in range(20):
        drawn = solved.draw_joint(Random(1))
        assert drawn is not None and not check(few, drawn)


def test_what_no_fewer_sizes_allow_is_searched_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said of three sizes together is not looked at where each keeps fewer."""
    part = part_of("tile-packed-column", "own_row * own_column * chunk_c == 54")
    number = SuitedSpace(part.space).count_joint()
    assert number and not SuitedSpace(with_fewer_sizes(part.space)).count_joint()
    search = PartSearch(part.space, part.cost(POCL), 1)
    assert search.expected_ms < float("inf")
    drawn = search.next()
    assert drawn is not None and not check(part.space, drawn.assignment)
    # Whatever it takes.
    monkeypatch.setattr(fewer_sizes, "_MOST_ARCS", 100)
    assert solved_for_search(part.space, Watch()).count_joint() == number


def test_a_kernel_that_packs_constants_costs_a_run_nothing() -> None:
    part = part_of("tile-packed-column")
    assert part.once == {"b_packed"}
    drawn = SuitedSpace(part.space).draw_joint(Random(1))
    assert drawn is not None
    each_time = replace(part, once=frozenset())
    assert part.cost(POCL).ms(drawn) < each_time.cost(POCL).ms(drawn)


def test_nothing_is_tried_again_for_what_a_run_does_not_do() -> None:
    part = part_of("tile-packed-column")
    spread = {v for v, _ in part.space.variables if getattr(v, "kernel", "") == "b_packed"}
    assert spread < part.idle
    assert not any(isinstance(v, ParameterVariable) for v in part.idle)
    search = PartSearch(part.space, part.cost(POCL), 1, idle=part.idle)
    seen: set[tuple[int, ...]] = set()
    for _ in range(80):
        drawn = search.next()
        assert drawn is not None and not check(part.space, drawn.assignment)
        own = tuple(value for v, value in drawn.assignment.items() if v not in part.idle)
        assert own not in seen
        seen.add(own)
        search.tell(drawn, 1.0)
    # Where nothing else is done, it is what counts.
    assert replace(part, once=frozenset(k.name for k in part.kernels)).idle == frozenset()
