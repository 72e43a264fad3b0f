"""What loops are expected to take on a processor's cores: orders that measurements have shown."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.index_expr import Expr, const, floor_div, modulo, symbol
from mapper.ast_model.text_form import parse
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.predicate import ParameterVariable, Variable
from mapper.constraint_rules.rule import Mode
from mapper.cost.compiled_expr import function_of
from mapper.cost.cores import (
    CoreCost,
    _busiest,  # pyright: ignore[reportPrivateUsage]
)
from mapper.layer_spec import LayerSpec, Layout
from mapper.pipeline import Subject, derive_space, subject_of_program
from mapper.profiles import load_profile
from mapper.programs.high_level import high_level_convolution
from mapper.solver.factored.suited import SuitedSpace
from mapper.solver.restrictions import Restrictions, narrowed
from nestmap.tuning.sketch_subjects import sketched_subjects, with_suits

POCL = load_profile("pocl")
PRODUCT = subject_of_program(
    parse("""program "product" {
  size M = 1024
  size N = 1024
  size K = 1024
  input a : [[float]K]M
  input b : [[float]N]K
  kernel c = map#row(x => join(map#column(y => reduce((acc, k) => fma(k.0, k.1, acc), 0.0,
    zip(x, y)), transpose(b))), a)
}
""")
)
NAMES = ("x", "y", "n")


def expressions() -> st.SearchStrategy[Expr]:
    leaves = st.one_of(st.integers(-9, 9).map(const), st.sampled_from(NAMES).map(symbol))

    def grown(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        pairs = st.tuples(inner, inner)
        return st.one_of(
            pairs.map(lambda p: p[0] + p[1]),
            pairs.map(lambda p: p[0] * p[1]),
            st.tuples(inner, st.integers(1, 5)).map(lambda p: floor_div(p[0], p[1])),
            st.tuples(inner, st.integers(1, 5)).map(lambda p: modulo(p[0], p[1])),
        )

    return st.recursive(leaves, grown, max_leaves=6)


@given(expressions(), st.tuples(*(st.integers(1, 20) for _ in NAMES)))
def test_a_compiled_expression_is_what_it_evaluates_to(
    expression: Expr, values: tuple[int, ...]
) -> None:
    given_: dict[str, int] = dict(zip(NAMES, values, strict=True))
    assert function_of(expression)(given_) == expression.evaluate(given_)


def costs_of(sketch: str, **parameters: int) -> list[float]:
    """Of the product, as :func:`costs_in` has them."""
    return costs_in(PRODUCT, sketch, **parameters)


def costs_in(program: Subject, sketch: str, **parameters: int) -> list[float]:
    """Those of some suitable solutions with these parameters; empty where there are none."""
    (subject,) = sketched_subjects(program, POCL, [sketch])
    space = derive_space(subject, Mode.STRICT, POCL, with_suits(subject, DEFAULT_OPTIONS))
    pins: dict[Variable, int] = {ParameterVariable(name): v for name, v in parameters.items()}
    solved = SuitedSpace(narrowed(space, Restrictions(pins=pins)))
    cost, random = CoreCost(elaborate(subject.require_program()).kernels, POCL), Random(1)
    drawn = (solved.draw_joint(random) for _ in range(40))
    return [cost.ms(found) for found in drawn if found is not None]


TILE = {"own_row": 8, "own_column": 32, "lanes_column": 16, "chunk_c": 16, "unroll_c": 0}


@pytest.mark.parametrize(
    "worse",
    [
        {"lanes_column": 4, "own_column": 8},  # narrower vectors
        {"own_row": 1, "own_column": 16},  # one sum waits for itself
        {"chunk_c": 1024, "unroll_c": 1},  # a body that no cache of instructions holds
    ],
)
def test_a_tile_that_fits_the_registers_is_the_cheapest(worse: dict[str, int]) -> None:
    assert min(costs_of("tile-column", **TILE)) < 0.7 * min(costs_of("tile-column", **TILE | worse))


def test_numbers_side_by_side_are_not_taken_by_steps_together() -> None:
    # Compilers load them as a vector then, and take it apart.
    apart = costs_of("tile-column", **TILE | {"unroll_c": 1})
    assert min(costs_of("tile-column", **TILE)) < 0.9 * min(apart)


def test_sums_that_leave_no_register_beside_them_suit_no_core() -> None:
    assert costs_of("tile-column", **TILE | {"own_row": 16}) == []


def test_tiles_cost_less_than_what_is_combined_at_the_end() -> None:
    assert min(costs_of("tile-column", **TILE)) < 0.1 * min(costs_of("sums-in-lanes"))


CONVOLUTION = subject_of_program(
    replace(
        high_level_convolution(
            LayerSpec(
                64,
                28,
                28,
                64,
                3,
                3,
                pad_top=1,
                pad_left=1,
                pad_bottom=1,
                pad_right=1,
                layout=Layout.NCHW,
            )
        ),
        constants=("weights",),
    )
)


def least_cost(sketch: str, **parameters: int) -> float:
    return min(costs_in(CONVOLUTION, sketch, **parameters))


BAND = {"tile_filter": 16, "own_filter": 16, "lanes_filter": 16, "tile_column": 7, "own_column": 7,
        "tile_row": 14, "own_row": 2, "rho_row": 0, "rho_column": 0,
        "chunk_convolution": 32}  # fmt: skip


def test_a_core_that_has_more_work_items_than_the_others_ends_last() -> None:
    # 32 work-items in groups of 27: one core has five of them.
    assert _busiest([(27, 1), (5, 1)], 2) == 27
    assert _busiest([(16, 2)], 2) == 16
    assert _busiest([(8, 3)], 2) == 16
    # Many groups are shared out evenly, but for the last.
    assert 1000 < _busiest([(2, 1000)], 2) < 1010


@given(
    st.lists(st.tuples(st.integers(1, 64), st.integers(1, 30)), min_size=1, max_size=4),
    st.integers(1, 8),
)
def test_the_busiest_core_has_at_least_its_share_and_a_group_more_at_most(
    groups: list[tuple[int, int]], cores: int
) -> None:
    items = sum(size * count for size, count in groups)
    busiest = _busiest(groups, cores)
    assert items / cores <= busiest <= items / cores + max(size for size, _ in groups)


def test_places_of_a_window_taken_together_cost_less_than_one_by_one() -> None:
    # Three in a row are not loaded as a vector.
    sketch = "blocks-bordered-packed-windows-filter"
    together = least_cost(sketch, **BAND, unroll_convolution=1)
    assert together < 0.97 * least_cost(sketch, **BAND, unroll_convolution=0)


def test_sums_that_outlive_a_chunk_are_fetched_once_for_all_of_it() -> None:
    sketch = "blocks-bordered-packed-windows-filter"
    few = least_cost(sketch, **BAND | {"chunk_convolution": 1}, unroll_convolution=1)
    assert least_cost(sketch, **BAND, unroll_convolution=1) < 0.9 * few


def test_guards_that_may_fail_cost_and_those_of_a_tile_without_a_rest_do_not() -> None:
    tile = {"own_filter": 32, "lanes_filter": 16, "own_column": 4, "own_row": 2, "rho_row": 0,
            "rho_column": 0, "chunk_convolution": 16, "unroll_convolution": 0}  # fmt: skip
    inside = least_cost("tile-bordered-packed-filter", **tile)
    assert inside < 0.8 * least_cost("tile-packed-filter", **tile)
