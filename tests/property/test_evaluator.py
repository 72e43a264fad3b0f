"""Whole arrays and samples have the interpreter's meaning, whatever the program."""

from __future__ import annotations

import warnings
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bench.proofs.schedules.computations import arrays, computation
from mapper.ast_model import contraction, evaluator, some_outputs
from mapper.ast_model.interpreter import interpret, interpret_all
from mapper.ast_model.nodes import Program
from mapper.ast_model.outputs import drawn, outputs
from mapper.ast_model.text_form import parse
from mapper.elements import Element
from mapper.errors import LimitError
from tests.property.programs import Case, cases, typed_cases


def held(program: Program, values: dict[str, int], inputs: dict[str, NDArray]) -> None:
    expected = interpret_all(program, values, inputs)
    run = evaluator.Evaluator(program, {**dict(program.sizes), **values})
    known = dict(inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # infinities may meet
        for kernel in program.kernels:
            known[kernel.name] = run.kernel(kernel.body, known)
            np.testing.assert_allclose(
                known[kernel.name], expected[kernel.name], rtol=1e-9, atol=1e-9
            )


@given(cases())
def test_whole_arrays_equal_the_interpreter(case: Case) -> None:
    held(case.program, case.values, case.inputs)


@given(typed_cases(), st.booleans())
def test_every_element_type_has_one_meaning(typed: tuple[Case, Element], some: bool) -> None:
    case, _ = typed
    judge = sampled if some else held
    judge(case.program, case.values, case.inputs)


@given(st.integers(0, 2**32))
def test_whole_computations_equal_the_interpreter(seed: int) -> None:
    random = Random(seed)
    program = computation(random)
    held(program, {}, arrays(program, random))


@given(st.integers(0, 2**32), st.sampled_from([(1, 1, 1), (4, 64, 2), (1, 10**6, 0)]))
def test_no_bound_shows(seed: int, bounds: tuple[int, int, int]) -> None:
    """Small parts, sums step by step or by BLAS, in panels, in 32-bit floats."""
    random = Random(seed)
    program = computation(random)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluator, "_CHUNK", bounds[0])
        patch.setattr(evaluator, "_STEPS", bounds[1])
        patch.setattr(evaluator, "_SMALL", bounds[2])
        patch.setattr(contraction, "PANEL", 2)
        patch.setattr(contraction, "SINGLE_FROM", 1)
        patch.setattr(contraction, "SINGLE_TERMS", 2)
        patch.setattr(contraction, "SINGLE_LEAST", 1)
        held(program, {}, arrays(program, random))


def test_single_floats_are_far_nearer_than_candidates_must_be(monkeypatch: pytest.MonkeyPatch):
    program = parse(
        'program "p" { size N = 128 size K = 4096 input a : [[float]K]N input b : [[float]K]N '
        "kernel out = map#r(x => join(map#c(y => "
        "reduce((acc, k) => fma(k.0, k.1, acc), 0.0, zip(x, y)), b)), a) }"
    )
    source = np.random.default_rng(1)
    inputs = {n: source.standard_normal((128, 4096), dtype=np.float32) for n in "ab"}
    expected = interpret(program, {}, inputs)
    monkeypatch.setattr(contraction, "SINGLE_FROM", 1)
    found = evaluator.Evaluator(program, dict(program.sizes)).kernel(
        program.kernels[0].body, inputs
    )
    allowed = 2.0**-23 * 8 * 4096**0.5
    error = np.abs(found - expected).max() / np.sqrt(np.mean(expected**2))
    assert 0 < error < allowed / 20


def sampled(program: Program, values: dict[str, int], inputs: dict[str, NDArray]) -> None:
    expected = interpret(program, values, inputs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluator, "MAX_OPERATIONS", -1)
        try:
            found = outputs(program, values, inputs, 1, sampled=20)
        except LimitError as error:
            assert "accumulator" in str(error)
            return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # infinities may meet
        if found.known is None:
            np.testing.assert_allclose(found.values, expected, rtol=1e-9, atol=1e-9)
            return
        places = ~np.isnan(found.values) | np.isnan(expected)
        assert 20 <= found.known < expected.size and places.sum() >= found.known
        np.testing.assert_allclose(found.values[places], expected[places], rtol=1e-9, atol=1e-9)


@given(cases())
def test_samples_equal_the_interpreter(case: Case) -> None:
    sampled(case.program, case.values, case.inputs)


@given(st.integers(0, 2**32))
def test_samples_of_computations_equal_the_interpreter(seed: int) -> None:
    random = Random(seed)
    program = computation(random)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(some_outputs, "_CHUNK", random.choice((1, 50, 2**19)))
        sampled(program, {}, arrays(program, random))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(1, 300))
def test_corners_and_borders_are_drawn(shape: list[int], count: int) -> None:
    indices = drawn(tuple(shape), count, 3)
    flat = np.ravel_multi_index(indices, shape)
    assert len(np.unique(flat)) == len(flat) >= min(count, np.prod(shape))
    for corner in ([0] * len(shape), [n - 1 for n in shape]):
        assert np.ravel_multi_index(corner, shape) in flat
    again = drawn(tuple(shape), count, 3)
    assert all(np.array_equal(a, b) for a, b in zip(indices, again, strict=True))
