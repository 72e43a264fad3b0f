"""What loops are expected to take on a processor's cores: orders that measurements have shown."""

from __future__ import annotations

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
from mapper.cost.cores import CoreCost
from mapper.pipeline import derive_space, subject_of_program
from mapper.profiles import load_profile
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
    """Those of some suitable solutions with these parameters; empty where there are none."""
    (subject,) = sketched_subjects(PRODUCT, POCL, [sketch])
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
