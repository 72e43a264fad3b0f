"""Layers of every kind: programs and kernels give what the reference gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bench.kernels.tuning_stage import bordered
from mapper.ast_model.interpreter import interpret
from mapper.layer_spec import Activation, LayerSpec, Layout
from mapper.programs.high_level import high_level_convolution
from nestmap.tuning.reference import convolve
from tests.conformance.judging import (
    PROCESSOR_SKETCHES,
    SKETCHED,
    VARIANTS,
    case_of,
    judge_in_oclgrind,
    judge_variant,
)
from tests.conformance.random_layers import inputs_of, layers
from tests.effort import LONG, cases, combined
from worker.measuring import MeasuringChild

pytestmark = pytest.mark.kernels


@settings(max_examples=cases(20, 200))
@given(layer=layers())
def test_the_high_level_program_means_the_reference(layer: LayerSpec):
    inputs = inputs_of(layer)
    result = interpret(high_level_convolution(layer), {}, inputs)
    expected = convolve(layer, **inputs)
    assert result.shape == layer.output_shape
    np.testing.assert_allclose(result, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("variant", VARIANTS)
def test_kernels_of_random_layers_are_right(variant: str, device: MeasuringChild):
    @settings(max_examples=cases(2, 12), phases=[Phase.generate])
    @given(layer=layers(), seed=st.integers(0, 2**31 - 1))
    def check(layer: LayerSpec, seed: int):
        judge_variant(case_of(layer), variant, device, seed)

    check()


# Kernels in blocks of 16 channels have tests of their own; a few channels are one block.
LAYOUTS = (Layout.NHWC, Layout.NCHW)
BASE = LayerSpec(4, 6, 7, 8, 3, 2, pad_top=1, pad_left=2, pad_bottom=0, pad_right=1, name="base")
ONE_OF_EACH = [
    replace(BASE, name="batch", batch=3),
    replace(BASE, name="grouped", groups=2),
    replace(BASE, name="depthwise", filters=4, groups=4),
    replace(BASE, name="depthwise with multiplier", groups=4),
    replace(BASE, name="dilated", dilation_y=2, dilation_x=3),
    replace(BASE, name="strides", stride_y=2, stride_x=3),
    replace(BASE, name="padding beyond the kernel", pad_top=4, pad_left=3),
    replace(BASE, name="pointwise", kernel_height=1, kernel_width=1),
    LayerSpec.one_dimensional(3, 9, 4, 3, stride=2, dilation=2, pad_left=1, name="1-D"),
    *(replace(BASE, name=a.value, activation=a, bias=True) for a in Activation),
    replace(BASE, name="all", batch=2, groups=2, dilation_x=2, stride_y=2, bias=True),
]


@pytest.mark.parametrize(
    ("layer", "layout", "variant"),
    combined(ONE_OF_EACH, LAYOUTS, VARIANTS),
    ids=lambda value: getattr(value, "name", None),
)
def test_kernels_of_one_of_each_kind_are_right(
    layer: LayerSpec,
    layout: Layout,
    variant: str,
    device: MeasuringChild,
    plain_device: MeasuringChild,
):
    # One layout as PoCL optimises it; what programs mean shows without, and is there sooner.
    judge = device if LONG or layout is Layout.NHWC else plain_device
    judge_variant(case_of(replace(layer, layout=layout)), variant, judge)


IN_BLOCKS = [
    LayerSpec(48, 3, 4, 32, 2, 1, pad_top=1, groups=4, bias=True, name="groups across blocks"),
    LayerSpec(3, 4, 3, 32, 2, 2, stride_y=2, batch=2, name="few channels"),
    LayerSpec(16, 2, 3, 32, 1, 1, activation="relu", bias=True, name="pointwise"),
]


VARIANTS_IN_BLOCKS = [
    *((layer, variant) for layer in IN_BLOCKS for variant in VARIANTS),
    # The border is in the image already.
    (bordered(IN_BLOCKS[0]), PROCESSOR_SKETCHES),
]


@pytest.mark.parametrize(
    ("layer", "variant"), VARIANTS_IN_BLOCKS, ids=[f"{x.name}-{v}" for x, v in VARIANTS_IN_BLOCKS]
)
def test_kernels_of_blocks_of_channels_are_right(
    layer: LayerSpec, variant: str, device: MeasuringChild
):
    judge_variant(case_of(replace(layer, layout=Layout.NCHW16C)), variant, device)


@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
@pytest.mark.parametrize("variant", SKETCHED)
def test_a_kernel_of_blocks_of_channels_is_clean_in_oclgrind(variant: str, device: MeasuringChild):
    judge_in_oclgrind([case_of(replace(IN_BLOCKS[0], layout=Layout.NCHW16C))], variant, device)


@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
@pytest.mark.parametrize("variant", VARIANTS)
def test_kernels_are_clean_in_oclgrind(variant: str, device: MeasuringChild):
    names = ("depthwise", "dilated", "1-D", "leaky_relu", "all")
    chosen = combined([layer for layer in ONE_OF_EACH if layer.name in names], LAYOUTS)
    judged = [case_of(replace(layer, layout=layout)) for layer, layout in chosen]
    judge_in_oclgrind(judged, variant, device)
