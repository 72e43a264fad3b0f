"""Layers with one plainest spelling compute the same from the same bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapper.errors import InputError
from mapper.layer_spec import LayerSpec, Layout, plainest
from mapper.pipeline import subject_of_layer
from nestmap.tuning.reference import convolve, input_shapes
from tests.effort import cases

SMALL = st.integers(1, 3)


@st.composite
def layers(draw: st.DrawFn) -> LayerSpec:
    given: dict[str, Any] = {
        "kernel_height": draw(SMALL), "kernel_width": draw(SMALL),
        "stride_y": draw(SMALL), "stride_x": draw(SMALL),
        "dilation_y": draw(SMALL), "dilation_x": draw(SMALL),
        "batch": draw(SMALL), "bias": draw(st.booleans()),
        "layout": draw(st.sampled_from(list(Layout))),
        **{f"pad_{side}": draw(st.integers(0, 1)) for side in ("top", "left", "bottom", "right")},
    }  # fmt: skip
    groups = draw(st.integers(1, 2))
    channels, filters = groups * draw(SMALL), groups * draw(SMALL)
    try:
        return LayerSpec(channels, draw(st.integers(1, 4)), draw(st.integers(1, 4)), filters,
                         groups=groups, **given)  # fmt: skip
    except InputError:
        return LayerSpec(channels, 4, 4, filters, 1, 1, layout=given["layout"])


def result(layer: LayerSpec, numbers: dict[str, Any]) -> Any:
    shapes = input_shapes(subject_of_layer(layer, "high-level"))
    given = {name: numbers[name].reshape(shape) for name, shape in shapes.items()}
    return convolve(layer, given["image"], given["weights"], given.get("bias")).ravel()


@settings(deadline=None, max_examples=cases(60, 150))
@given(layers())
def test_the_plainest_spelling_is_the_same_in_memory(layer: LayerSpec):
    plain = plainest(layer)
    assert plainest(plain) == plain
    shapes = input_shapes(subject_of_layer(layer, "high-level"))
    generator = np.random.default_rng(0)
    numbers = {name: generator.standard_normal(int(np.prod(s))) for name, s in shapes.items()}
    assert np.allclose(result(layer, numbers), result(plain, numbers))


ONE = LayerSpec(32, 1, 1, 64, 1, 1, name="one")


@pytest.mark.parametrize(
    "changes",
    [{"layout": "NCHW"}, {"layout": "NCHW16c"}, {"name": "other"}, {"dilation_y": 2}],
)
def test_one_pixel_lies_alike_in_all_layouts(changes: dict[str, Any]):
    assert plainest(replace(ONE, **changes)) == plainest(ONE)


def test_pixels_of_a_1x1_kernel_and_lines_are_one_thing():
    square = LayerSpec(8, 4, 6, 16, 1, 1, batch=2)
    assert plainest(square) == plainest(LayerSpec(8, 1, 48, 16, 1, 1))
    line, column = LayerSpec(8, 1, 9, 4, 1, 3), LayerSpec(8, 9, 1, 4, 3, 1)
    assert plainest(line) == plainest(column)
    nchw = replace(square, layout="NCHW")
    assert plainest(nchw) != plainest(square)
