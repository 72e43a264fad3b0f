"""Layers stored in 16-bit floats: programs and kernels give what the reference gives.

Sums are 32-bit floats, so that the only loss beside theirs is the rounding of the result.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from mapper.ast_model.interpreter import interpret
from mapper.layer_spec import Activation, DType, LayerSpec, Layout
from mapper.variants import variant_program
from tests.conformance import judging
from tests.conformance.judging import (
    VARIANTS,
    Case,
    assert_near,
    judge_in_oclgrind,
    judge_variant,
)
from tests.conformance.random_layers import layers
from tests.effort import cases, combined
from worker.measuring import MeasuringChild

pytestmark = pytest.mark.kernels


def case_of(layer: LayerSpec) -> Case:
    return judging.case_of(replace(layer, dtype=DType.FLOAT16))


@settings(max_examples=cases(12, 60))
@given(layer=layers())
def test_the_program_means_the_reference_rounded(layer: LayerSpec):
    case = case_of(layer)
    found = interpret(variant_program(case.layer, "high-level"), {}, case.inputs)
    assert found.dtype == np.float16
    assert_near(found, case, "interpreter")


@pytest.mark.parametrize("variant", VARIANTS)
def test_kernels_of_random_layers_are_right(variant: str, device: MeasuringChild):
    @settings(max_examples=cases(2, 6), phases=[Phase.generate])
    @given(layer=layers(), seed=st.integers(0, 2**31 - 1))
    def check(layer: LayerSpec, seed: int):
        judge_variant(case_of(layer), variant, device, seed)

    check()


PLAIN = LayerSpec(4, 6, 7, 8, 3, 2, pad_top=1, pad_left=2, pad_right=1, name="plain")
EVERYTHING = replace(
    PLAIN,
    name="everything",
    batch=2,
    groups=2,
    dilation_x=2,
    stride_y=2,
    bias=True,
    activation=Activation.RELU,
)


@pytest.mark.parametrize(
    ("layer", "layout", "variant"),
    combined([PLAIN, EVERYTHING], [Layout.NHWC, Layout.NCHW], VARIANTS),
    ids=lambda value: getattr(value, "name", None),
)
def test_kernels_are_right_at_both_edges(
    layer: LayerSpec, layout: Layout, variant: str, device: MeasuringChild
):
    judge_variant(case_of(replace(layer, layout=layout)), variant, device)


@pytest.mark.parametrize("variant", ["direct", "partial"])
def test_the_papers_variants_are_right(variant: str, device: MeasuringChild):
    layer = LayerSpec(4, 6, 6, 4, 3, 3, 1, 1, 1, 1, 1, name="paper")
    judge_variant(case_of(layer), variant, device)


@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
@pytest.mark.parametrize("variant", VARIANTS)
def test_kernels_are_clean_in_oclgrind(variant: str, device: MeasuringChild):
    judge_in_oclgrind([case_of(EVERYTHING)], variant, device)
