"""Depthwise kernels with channels in the lanes of vectors: right on PoCL, clean in Oclgrind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mapper.layer_spec import Activation, LayerSpec, Layout
from tests.conformance.judging import case_of, judge_in_oclgrind, judge_variant
from worker.measuring import MeasuringChild

pytestmark = pytest.mark.kernels

LAYER = LayerSpec(32, 7, 9, 32, 3, 3, 1, 1, 1, 1, groups=32, layout=Layout.NHWC)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"stride_y": 2, "stride_x": 2, "pad_top": 0, "pad_left": 0},
        {"dilation_y": 2, "dilation_x": 2, "batch": 2, "bias": True},
        {"channels": 6, "filters": 6, "groups": 6, "activation": Activation.RELU6},
        {"kernel_height": 1, "kernel_width": 5, "pad_left": 2, "pad_right": 2},
    ],
    ids=str,
)
def test_kernels_of_all_that_a_layer_may_be_are_right(
    changes: dict[str, object], device: MeasuringChild
):
    judge_variant(case_of(replace(LAYER, **changes)), "channelwise", device)  # pyright: ignore[reportArgumentType]


@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
def test_kernels_are_clean_in_oclgrind(device: MeasuringChild):
    judge_in_oclgrind([case_of(replace(LAYER, stride_x=2, bias=True))], "channelwise", device)
