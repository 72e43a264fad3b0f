"""Separated maps go over the arrays that depend on them, and what they compute stays the same."""

from __future__ import annotations

import numpy as np

from mapper.ast_model.elaborate import elaborate_symbolic
from mapper.ast_model.interpreter import interpret
from mapper.ast_model.nest import NestMap, maps_below
from mapper.ast_model.nodes import Program
from mapper.ast_model.text_form import parse
from mapper.schedules.schedule import derived
from mapper.schedules.schedule_text import parse_schedule

INPUTS = {
    "a": np.random.default_rng(0).standard_normal((6, 8)),
    "b": np.random.default_rng(1).standard_normal((8, 4)),
}
PRODUCT = parse("""program "product" {
  size M = 6
  size N = 4
  size K = 8
  input a : [[float]K]M
  input b : [[float]N]K
  kernel c = map#row(x => join(map#col(y => reduce((acc, k) => fma(k.0, k.1, acc), 0.0,
    zip(x, y)), transpose(b))), a)
}""")


def after(program: Program, steps: str) -> Program:
    return derived(program, parse_schedule(f'schedule "s" {{ {steps} }}'))


def maps_of(program: Program) -> dict[str, NestMap]:
    kernels = elaborate_symbolic(program, {}).kernels
    return {str(m.id): m for kernel in kernels for m in maps_below(kernel.nest().roots)}


def test_a_perfect_nest_is_none_where_its_maps_go_over_different_arrays() -> None:
    nested = after(PRODUCT, "reorder([col, row])")
    apart = after(PRODUCT, "reorder([col, row]) separate(row)")
    assert maps_of(nested)["row"].perfectly_nested
    assert not maps_of(apart)["row"].perfectly_nested
    wanted = interpret(PRODUCT, {}, INPUTS)
    np.testing.assert_allclose(interpret(apart, {}, INPUTS), wanted, rtol=1e-12)


def test_maps_that_go_along_the_same_array_stay_perfectly_nested() -> None:
    steps = "split(row, 3) split(col, 2) reorder([row_tile, row_in_tile, col_tile, col_in_tile])"
    apart = after(PRODUCT, f"{steps} separate(col_in_tile)")
    found = {name: m.perfectly_nested for name, m in maps_of(apart).items()}
    assert found == {"row_tile": False, "row_in_tile": True, "col_tile": False, "col_in_tile": True}
    np.testing.assert_allclose(
        interpret(apart, {}, INPUTS), interpret(PRODUCT, {}, INPUTS), rtol=1e-12
    )


def test_once_copies_what_repeats_a_single_time() -> None:
    steps = "split(row, 3) split(col, 2) reorder([row_tile, col_tile, row_in_tile, col_in_tile])"
    twice = after(PRODUCT, f"{steps} stage(col_tile, b, local)")
    once = after(PRODUCT, f"{steps} stage(col_tile, b, local, once=true)")
    trips = [[str(m.trip) for name, m in maps_of(p).items() if name.startswith("b_local")]
             for p in (twice, once)]  # fmt: skip
    assert trips == [["3", "2", "K"], ["2", "K"]]
    np.testing.assert_allclose(
        interpret(once, {}, INPUTS), interpret(PRODUCT, {}, INPUTS), rtol=1e-12
    )


def test_a_restarted_sum_is_added_to_the_one_around() -> None:
    steps = "split_reduce(k, 4) restart(k_in_tile)"
    found = maps_of(after(PRODUCT, steps))
    assert "k_in_tile_add" in found and "k_in_tile_one" not in found
    moved = after(PRODUCT, f"move_inside(col) {steps}")
    for program in (after(PRODUCT, steps), moved):
        np.testing.assert_allclose(
            interpret(program, {}, INPUTS), interpret(PRODUCT, {}, INPUTS), rtol=1e-12
        )


def test_a_component_that_is_a_tuple_itself_is_put_in_one_by_one() -> None:
    program = parse("""program "tuples" {
  size M = 6
  size N = 4
  input a : [[float]N]M
  input b : [[float]N]M
  kernel c = map#row(z => map#col(w => fma(w.0, w.1, w.2), zip(z.0.0, z.0.1, z.1)),
    zip(zip(a, b), map#lay(v => reorder(reverse, v), a)))
}""")
    inputs = {"a": INPUTS["a"][:, :4], "b": INPUTS["b"][:6]}
    staged = after(program, "stage(row, b, local)")
    assert "b_local" in maps_of(staged)
    np.testing.assert_allclose(interpret(staged, {}, inputs), interpret(program, {}, inputs))
