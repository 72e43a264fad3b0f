"""The programs in ``examples/programs``: read, checked, equal to NumPy, and with kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mapper.ast_model.codec import program_from_json, program_to_json
from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.interpreter import interpret
from mapper.ast_model.nodes import Program
from mapper.ast_model.text_form import parse, to_text
from mapper.ast_model.type_check import check_program
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.pipeline import derive_space, generate_kernels, subject_of_program
from mapper.profiles import load_profile
from mapper.solver.sampling import complete
from tests.kernels import run_once

Array = NDArray[Any]
Meaning = Callable[[Mapping[str, Array]], Array]
FOLDER = Path(__file__).resolve().parents[3] / "examples" / "programs"


def _windows(a: Array, k: int, axes: tuple[int, ...]) -> Array:
    return np.lib.stride_tricks.sliding_window_view(a, (k,) * len(axes), axis=axes)


def _pooled(a: Array) -> Array:
    return _windows(a, 3, (0, 1))[::2, ::2].max(axis=(3, 4))


def _depthwise_pointwise(given: Mapping[str, Array]) -> Array:
    windows = _windows(np.pad(given["a"], ((1, 1), (1, 1), (0, 0))), 3, (0, 1))
    return np.einsum("hwcij,cij,mc->hwm", windows, given["spatial"], given["mixing"])


def _softmax(a: Array) -> Array:
    powers = np.exp(a - a.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def _layer_norm(given: Mapping[str, Array]) -> Array:
    a = given["a"]
    middle = a.mean(axis=1, keepdims=True)
    apart = np.sqrt(((a - middle) ** 2).mean(axis=1, keepdims=True) + 1e-5)
    return (a - middle) / apart * given["scale"] + given["offset"]


def _heat(a: Array, steps: int) -> Array:
    for _ in range(steps):
        p = np.pad(a, 1)
        around = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
        a = a + 0.1 * (around - 4 * a)
    return a


def _heat_in_half(a: Array) -> Array:
    p, here = np.pad(a, 1), a
    around = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
    assert around.dtype == np.float16
    return here + np.float16(0.1) * (around - np.float16(4) * here)


def _transposed_convolution(given: Mapping[str, Array]) -> Array:
    a, f = given["a"], given["f"]
    (h, w, _), (m, k, _, _) = a.shape, f.shape
    whole = np.zeros((2 * (h - 1) + k, 2 * (w - 1) + k, m))
    for y in range(h):
        for x in range(w):
            whole[2 * y : 2 * y + k, 2 * x : 2 * x + k] += np.einsum("c,mijc->ijm", a[y, x], f)
    return whole


#: The sizes to test with, and what is computed.
EXAMPLES: dict[str, tuple[dict[str, int], Meaning]] = {
    "matrix_product": ({"M": 4, "N": 6, "K": 5}, lambda g: g["a"] @ g["b"]),
    "matrix_product_transposed": ({"M": 4, "N": 6, "K": 5}, lambda g: g["a"].T @ g["b"].T),
    "matrix_product_batched": ({"B": 2, "M": 4, "N": 6, "K": 5}, lambda g: g["a"] @ g["b"]),
    "matrix_product_bias_relu": (
        {"M": 4, "N": 6, "K": 5},
        lambda g: np.maximum(g["a"] @ g["b"] + g["bias"], 0),
    ),
    "matrix_vector_product": ({"M": 6, "K": 8}, lambda g: g["a"] @ g["x"]),
    "row_sums": ({"M": 6, "N": 8}, lambda g: g["a"].sum(axis=1)),
    "softmax": ({"M": 3, "N": 8}, lambda g: _softmax(g["a"])),
    "max_pooling": ({"H": 7, "W": 9, "C": 4}, lambda g: _pooled(g["a"])),
    "average_pooling": (
        {"H": 4, "W": 6, "C": 4},
        lambda g: g["a"].reshape(2, 2, 3, 2, 4).mean(axis=(1, 3)),
    ),
    "depthwise_pointwise": ({"H": 4, "W": 5, "C": 3, "M": 2}, _depthwise_pointwise),
    "convolution_1d": (
        {"W": 9, "C": 3, "M": 4},
        lambda g: np.einsum("wck,mkc->wm", _windows(g["a"], 5, (0,)), g["f"]),
    ),
    "convolution_3d": (
        {"D": 4, "H": 5, "W": 6, "C": 2, "M": 3},
        lambda g: np.einsum("dhwcijk,mijkc->dhwm", _windows(g["a"], 3, (0, 1, 2)), g["f"]),
    ),
    "transposed_convolution": ({"H": 3, "W": 4, "C": 2, "M": 3}, _transposed_convolution),
    "stencil_5_point": ({"H": 6, "W": 8}, lambda g: _heat(g["a"], 1)),
    "stencil_9_point": (
        {"H": 6, "W": 8},
        lambda g: np.einsum(
            "hwij,ij->hw", _windows(np.pad(g["a"], 1), 3, (0, 1)), g["weights"]
        ),
    ),
    "stencil_time_steps": ({"H": 6, "W": 8}, lambda g: _heat(g["a"], 3)),
    "tensor_contraction": (
        {"A": 2, "B": 3, "C": 4, "D": 2, "E": 3, "F": 5},
        lambda g: np.einsum("aebf,fdec->abcd", g["x"], g["y"]),
    ),
    "matrix_product_int8": (
        {"M": 4, "N": 6, "K": 40},
        lambda g: g["a"].astype(np.int32) @ g["b"].astype(np.int32),
    ),
    "max_pooling_int16": ({"H": 7, "W": 9, "C": 4}, lambda g: _pooled(g["a"])),
    "stencil_half": ({"H": 6, "W": 8}, lambda g: _heat_in_half(g["a"])),
    "layer_norm": ({"M": 3, "N": 8}, _layer_norm),
    "leaky_relu_clipped": (
        {"M": 4, "N": 8},
        lambda g: np.minimum(np.where(g["a"] < 0, g["a"] / 10, g["a"]), g["limits"][:, None]),
    ),
    "transposition": ({"M": 4, "N": 6}, lambda g: g["a"].T),
}  # fmt: skip


def test_every_example_has_its_meaning_here() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.txt")) == sorted(EXAMPLES)


def read(name: str) -> Program:
    return parse((FOLDER / f"{name}.txt").read_text(encoding="utf-8"))


def small(name: str) -> Program:
    """The example with sizes of a test; sizes of filters stay."""
    program = read(name)
    sizes = EXAMPLES[name][0]
    return replace(program, sizes=tuple((n, sizes.get(n, v)) for n, v in program.sizes))


def given(program: Program) -> dict[str, Array]:
    source = np.random.default_rng(5)
    numbers: dict[str, Array] = {}
    for buffer in elaborate(program).inputs:
        low, high = buffer.dtype.range if buffer.dtype.is_integer else (-4, 4)
        shape = [length.constant or 0 for length in buffer.dimensions]
        numbers[buffer.name] = source.integers(low, high + 1, shape).astype(buffer.dtype.value)
    if "count" in numbers:  # how long a row is, as a float
        numbers["count"][:] = dict(program.sizes)["N"]
    return numbers


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_well_typed_and_read_back(name: str) -> None:
    program = read(name)
    check_program(program)
    assert program.name == name
    assert parse(to_text(program)) == program
    assert program_from_json(program_to_json(program)) == program


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_means_what_numpy_computes(name: str) -> None:
    program = small(name)
    inputs = given(program)
    found = interpret(program, {}, inputs)
    wide = {
        key: array.astype(np.float64) if array.dtype == np.float32 else array
        for key, array in inputs.items()
    }
    meant = EXAMPLES[name][1](wide)
    assert found.dtype == meant.dtype
    np.testing.assert_allclose(found, meant, rtol=1e-12, atol=1e-12)


@pytest.mark.kernels
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_mapping_that_the_solver_finds_computes_an_example(name: str) -> None:
    program = small(name)
    subject = subject_of_program(program)
    device = replace(load_profile("pocl"), half_storage=True)
    space = derive_space(subject, Mode.STRICT, device, RuleOptions())
    plan = generate_kernels(subject, complete(space))
    inputs = given(program)
    expected = interpret(program, {}, inputs)
    found = run_once(plan, inputs).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
