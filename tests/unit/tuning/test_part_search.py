"""Solutions of one space in the order in which they are tried: few sizes first, then all."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from mapper.ast_model.text_form import parse
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.predicate import ParameterVariable
from mapper.constraint_rules.rule import Mode
from mapper.errors import LimitError, Problem
from mapper.pipeline import derive_space, subject_of_program
from mapper.profiles import load_profile
from mapper.solver.factored.suited import SuitedSpace
from mapper.solver.limits import Watch
from mapper.solver.space import Space, check
from mapper.tuning_space.where import with_where
from nestmap.tuning import part_search
from nestmap.tuning.drawing import Drawn
from nestmap.tuning.kernel_parts import KernelPart, kernel_parts
from nestmap.tuning.part_search import PartSearch, with_fewer_sizes
from nestmap.tuning.sketch_subjects import sketched_subjects, with_suits

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


def test_all_sizes_are_tried_after_some_of_fewer_and_nothing_twice() -> None:
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
        assert not check(part.space, drawn.point.assignment)
        tried.append(drawn.point.assignment[ParameterVariable("own_row")])
        search.tell(drawn, 1.0 + 1.0 / (1 + number))
    assert set(tried[:12]) <= few
    assert set(tried) - few


@pytest.mark.parametrize("sketch", ["tile-packed-column", "blocks-column"])
def test_what_is_told_of_after_all_sizes_are_solved_is_gone_on_from(sketch: str) -> None:
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
        assert drawn is not None and not check(part.space, drawn.point.assignment)
        search.tell(drawn, 100.0)


def test_sizes_that_are_pinned_beside_the_fewer_are_found() -> None:
    part = part_of("tile-packed-column", "chunk_c == 6")
    assert 6 not in sizes_of(with_fewer_sizes(part.space), "chunk_c")
    search = PartSearch(part.space, part.cost(POCL), 1)
    assert search.expected_ms < float("inf")
    drawn = search.next()
    assert drawn is not None
    assert drawn.point.assignment[ParameterVariable("chunk_c")] == 6


def test_a_space_that_takes_long_with_all_sizes_keeps_the_fewer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part = part_of("tile-packed-column")
    few = with_fewer_sizes(part.space)

    def solved(space: Space, watch: Watch | None = None) -> SuitedSpace:
        if space.variables == part.space.variables:
            raise LimitError(Problem("limits", "the time limit was reached"))
        return SuitedSpace(space, watch)

    monkeypatch.setattr(part_search, "SuitedSpace", solved)
    search = PartSearch(part.space, part.cost(POCL), 1)
    for _ in range(40):
        drawn = search.next()
        assert drawn is not None and not check(few, drawn.point.assignment)
        search.tell(drawn, 1.0)


def test_a_kernel_that_packs_constants_costs_a_run_nothing() -> None:
    part = part_of("tile-packed-column")
    assert part.once == {"b_packed"}
    drawn = SuitedSpace(part.space).draw_joint(Random(1))
    assert drawn is not None
    each_time = replace(part, once=frozenset())
    assert part.cost(POCL).ms(drawn) < each_time.cost(POCL).ms(drawn)
