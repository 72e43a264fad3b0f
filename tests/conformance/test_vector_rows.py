"""Kernels that copy rows of the image in vectors: right on PoCL, clean in Oclgrind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mapper.layer_spec import LayerSpec, Layout
from tests.conformance.judging import case_of, judge_in_oclgrind, judge_variant
from worker.measuring import MeasuringChild

pytestmark = pytest.mark.kernels

LAYER = LayerSpec(4, 6, 8, 8, 3, 3, pad_top=1, pad_left=1, bias=True, layout=Layout.NCHW)


@pytest.mark.parametrize("variant", ["tiled-vectors-slices", "tiled-vectors-split"])
def test_kernels_are_right(variant: str, device: MeasuringChild):
    judge_variant(case_of(LAYER), variant, device)


def test_kernels_of_joined_rows_are_right(device: MeasuringChild):
    layer = replace(LAYER, kernel_height=1, kernel_width=1, pad_top=0, pad_left=0, pad_bottom=0)
    judge_variant(case_of(replace(layer, pad_right=0)), "tiled-vectors", device)


@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
def test_kernels_are_clean_in_oclgrind(device: MeasuringChild):
    judge_in_oclgrind([case_of(replace(LAYER, stride_x=2))], "tiled-vectors", device)
