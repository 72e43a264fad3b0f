"""The reference is a convolution, whatever its chunks, and so is im2col."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import correlate

from mapper.ast_model import evaluator, some_outputs
from mapper.ast_model.outputs import outputs
from mapper.ast_model.text_form import parse
from mapper.elements import BY_TEXT
from mapper.errors import InputError, LimitError
from mapper.layer_spec import LayerSpec
from mapper.pipeline import subject_of_layer, subject_of_nest, subject_of_program
from mapper.variants import variant_program
from nestmap.tasks.replies import Replies
from nestmap.tasks.workload_files import Spool, workload_json
from nestmap.tuning import reference
from nestmap.tuning.baselines import filter_matrices, from_matrices, im2col
from tests.conformance import random_layers as every_kind
from tests.effort import cases
from tests.unit.tuning.fakes import TINY


@st.composite
def layers(draw: st.DrawFn) -> LayerSpec:
    kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    return LayerSpec(
        channels=draw(st.integers(1, 3)),
        height=draw(st.integers(3, 6)),
        width=draw(st.integers(3, 6)),
        filters=draw(st.integers(1, 3)),
        kernel_height=kernel[0],
        kernel_width=kernel[1],
        stride=draw(st.integers(1, 3)),
        pad_top=draw(st.integers(0, kernel[0] - 1)),
        pad_left=draw(st.integers(0, kernel[1] - 1)),
        pad_bottom=draw(st.integers(0, kernel[0] - 1)),
        pad_right=draw(st.integers(0, kernel[1] - 1)),
    )


def data_of(layer: LayerSpec) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(1)
    kernel = (layer.kernel_height, layer.kernel_width)
    return (
        generator.standard_normal((layer.height, layer.width, layer.channels), dtype=np.float32),
        generator.standard_normal((layer.filters, *kernel, layer.channels), dtype=np.float32),
    )


def convolve_slowly(layer: LayerSpec, image: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Seven loops, as one writes a convolution down."""
    result = np.zeros((layer.output_height, layer.output_width, layer.filters))
    for y, x, m in np.ndindex(*result.shape):
        for i, j in np.ndindex(layer.kernel_height, layer.kernel_width):
            row = y * layer.stride + i - layer.pad_top
            column = x * layer.stride + j - layer.pad_left
            if 0 <= row < layer.height and 0 <= column < layer.width:
                for c in range(layer.channels):
                    result[y, x, m] += float(image[row, column, c]) * float(weights[m, i, j, c])
    return result


@settings(max_examples=cases(20, 40))
@given(layer=layers())
def test_reference_and_im2col_equal_the_loops(layer: LayerSpec):
    image, weights = data_of(layer)
    expected = convolve_slowly(layer, image, weights)
    np.testing.assert_allclose(reference.convolve(layer, image, weights), expected, atol=1e-12)
    matrix = weights.reshape(layer.filters, -1).T
    product = (im2col(layer, image) @ matrix).reshape(expected.shape)
    np.testing.assert_allclose(product, expected, atol=1e-4)


@settings(max_examples=cases(25, 60))
@given(layer=every_kind.layers())
def test_im2col_equals_the_reference_for_layers_of_every_kind(layer: LayerSpec):
    inputs = every_kind.inputs_of(layer)
    columns = im2col(layer, inputs["image"])
    pixels = layer.batch * layer.output_height * layer.output_width
    assert columns.shape == (layer.groups, pixels, layer.accumulation_length)
    product = columns @ filter_matrices(layer, inputs["weights"])
    result = from_matrices(layer, product, inputs.get("bias"))
    np.testing.assert_allclose(result, reference.convolve(layer, **inputs), atol=1e-4)


def test_arrays_of_another_shape_are_refused_by_name():
    image, weights = data_of(TINY)
    with pytest.raises(InputError) as caught:
        reference.convolve(TINY, image[1:], weights.T, np.zeros(3))
    found = [problem.path for problem in caught.value.problems]
    assert found == ["inputs/image", "inputs/weights", "inputs/bias", "inputs/bias"]


def test_reference_equals_scipy():
    layer = LayerSpec(3, 9, 8, 4)
    image, weights = data_of(layer)
    expected = np.stack(
        [correlate(image.astype(float), w.astype(float), mode="valid")[..., 0] for w in weights],
        axis=-1,
    )
    np.testing.assert_allclose(reference.convolve(layer, image, weights), expected, atol=1e-12)


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch):
    image, weights = data_of(TINY)
    whole = reference.convolve(TINY, image, weights)
    monkeypatch.setattr(reference, "_CHUNK_BYTES", 1)
    np.testing.assert_allclose(reference.convolve(TINY, image, weights), whole, atol=1e-12)


@settings(max_examples=cases(20, 40))
@given(layer=every_kind.layers())
def test_some_outputs_of_a_layer_are_those_of_all(layer: LayerSpec):
    inputs = every_kind.inputs_of(layer)
    some, whole = (
        reference.convolve_some(layer, 5, 1, **inputs),
        reference.convolve(layer, **inputs),
    )
    known = np.isfinite(some)
    assert known.sum() >= min(5, whole.size)
    np.testing.assert_allclose(some[known], whole[known], atol=1e-4)


def test_a_layer_beyond_all_use_has_a_reference_within_seconds():
    """All outputs of it took 600 s of the child that all runs share, and then there was none."""
    layer = LayerSpec(512, 256, 256, 512, 3, 3, pad_top=1, pad_left=1, pad_bottom=1, pad_right=1)
    assert layer.macs > reference.MOST_MULTIPLICATIONS
    inputs = {
        "image": np.ones(layer.image_shape, np.float32),
        "weights": np.ones(layer.weights_shape, np.float32),
    }
    began = time.process_time()
    expected = reference.expected_of_layer(layer, inputs, 1)
    assert time.process_time() - began < 10
    assert np.nanmax(expected) == 9 * 512 and np.isnan(expected).mean() > 0.9


def test_a_program_that_only_the_interpreter_can_do_has_seconds(monkeypatch: pytest.MonkeyPatch):
    def none(*given: object) -> None:
        del given
        raise LimitError("not in time")

    monkeypatch.setattr(reference, "outputs", none)
    monkeypatch.setattr(reference, "INTERPRETED_S", 0.0)
    subject = subject_of_program(variant_program(TINY, "high-level"))
    with pytest.raises(LimitError, match="time limit"):
        reference.make_workload(subject, 3, {})


def test_program_without_a_layer_has_the_interpreters_meaning():
    of_layer = reference.make_workload(subject_of_layer(TINY, "high-level"), 3, {})
    program = subject_of_program(variant_program(TINY, "high-level"))
    of_program = reference.make_workload(program, 3, {})
    np.testing.assert_allclose(of_program.expected, of_layer.expected, atol=1e-9)
    assert of_program.tolerance == of_layer.tolerance
    for name, array in of_layer.inputs.items():
        np.testing.assert_array_equal(of_program.inputs[name], array)
        assert array.dtype == np.float32


def test_inputs_depend_on_the_seed():
    subject = subject_of_layer(TINY, "high-level")
    first, second = (reference.make_inputs(subject, seed)["image"] for seed in (0, 1))
    assert not np.array_equal(first, second)


def test_nest_tree_has_no_reference():
    nest = subject_of_nest(subject_of_layer(TINY, "high-level").nests[0])
    with pytest.raises(InputError, match="nothing about what is computed"):
        reference.make_inputs(nest, 0)


def test_reference_of_a_large_program_knows_some_outputs(monkeypatch: pytest.MonkeyPatch):
    program = subject_of_program(
        parse(
            'program "p" { size N = 100 input a : [[float]N]N '
            "kernel out = map#r(x => map#c(v => mul(v, 2.0), x), a) }"
        )
    )
    whole = reference.make_workload(program, 3, {}).expected
    monkeypatch.setattr(evaluator, "MAX_OPERATIONS", 1)
    some = reference.make_workload(program, 3, {}).expected
    known = ~np.isnan(some)
    assert 4096 <= known.sum() < some.size
    np.testing.assert_array_equal(some[known], whole[known])


def test_program_whose_outputs_are_not_finite_has_no_reference():
    program = subject_of_program(
        parse(
            'program "p" { size N = 9 fun over(x) = x / 0.0 input a : [float]N '
            "kernel out = map#r(v => over(v), a) }"
        )
    )
    with pytest.raises(InputError, match="NaN or infinity"):
        reference.make_workload(program, 3, {})


def test_what_cannot_be_done_in_time_is_interpreted(monkeypatch: pytest.MonkeyPatch):
    program = subject_of_program(variant_program(TINY, "high-level"))
    wanted = reference.make_workload(program, 3, {}).expected
    monkeypatch.setattr(evaluator, "MAX_OPERATIONS", 1)
    monkeypatch.setattr(some_outputs, "MAX_ELEMENTS", 1)
    found = reference.make_workload(program, 3, {}).expected
    np.testing.assert_allclose(found, wanted, atol=1e-9)


def product_of(element: str, k: int, convert: str, start: str) -> str:
    step = f"fma({convert.format('k.0')}, {convert.format('k.1')}, acc)"
    return (
        f'program "p" {{ size K = {k} input a : [[{element}]K]8 input b : [[{element}]K]6 '
        f"kernel c = map#r(x => join(map#c(y => reduce((acc, k) => {step}, {start}, zip(x, y)), "
        "b)), a) }"
    )


@pytest.mark.parametrize(("element", "wraps"), [("char", False), ("short", False), ("int", True)])
def test_products_of_integers_are_exact_and_wrap_around(element: str, wraps: bool) -> None:
    convert = "{}" if element == "int" else "int_of({})"
    program = subject_of_program(parse(product_of(element, 4096, convert, "0:int")))
    found = reference.make_workload(program, 3, {})
    a, b = (found.inputs[name].astype(np.int64) for name in "ab")
    assert found.inputs["a"].dtype == BY_TEXT[element].value and len(np.unique(a)) > 200
    np.testing.assert_array_equal(found.expected, (a @ b.T).astype(np.int32))
    assert found.tolerance.relative == 0.0
    if wraps:
        # Sums that 64-bit floats do not hold either.
        large = {name: array * 1000003 for name, array in found.inputs.items()}
        wanted = (large["a"].astype(np.int64) @ large["b"].T.astype(np.int64)).astype(np.int32)
        whole = outputs(program.require_program(), {}, large, 3)
        np.testing.assert_array_equal(whole.values, wanted)


def test_sums_of_halves_are_of_halves_and_so_is_the_tolerance() -> None:
    program = subject_of_program(parse(product_of("half", 64, "{}", "0:half")))
    found = reference.make_workload(program, 3, {})
    total = np.zeros((8, 6), np.float16)
    for step in range(64):
        a, b = (found.inputs[name][:, step].astype(np.float64) for name in "ab")
        total = (total + np.multiply.outer(a, b)).astype(np.float16)
    np.testing.assert_array_equal(found.expected, total)
    # The last is the one rounding of fma, once for all steps.
    assert found.tolerance.relative == pytest.approx(2**-9 * 8 + 2**-11, rel=0.01)
    stored = subject_of_program(parse(product_of("half", 64, "float_of({})", "0.0")))
    assert reference.make_workload(stored, 3, {}).tolerance.relative < 2**-11


def test_a_job_has_integers_in_64_bits_and_floats_in_32(tmp_path: Path) -> None:
    for element, convert, start, dtype in (
        ("char", "int_of({})", "0:int", "float64"),
        ("float", "{}", "0.0", "float32"),
    ):
        program = subject_of_program(parse(product_of(element, 4, convert, start)))
        spool = Spool(tmp_path, cast("Replies", SimpleNamespace(item=lambda value: None)))
        workload = workload_json(program, {}, spool)
        assert workload["expected"]["dtype"] == dtype
        assert workload["inputs"]["a"]["dtype"] == BY_TEXT[element].value
