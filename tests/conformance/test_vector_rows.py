"""Kernels that copy rows of the image in vectors: right on PoCL, clean in Oclgrind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from mapper.host_plan import HostPlan
from mapper.layer_spec import LayerSpec, Layout
from tests.conformance.judging import (
    GPU_SKETCHES,
    Case,
    case_of,
    judge_plans,
    judge_plans_in_oclgrind,
    of_named,
)
from worker.measuring import MeasuringChild

pytestmark = pytest.mark.kernels

LAYER = LayerSpec(8, 6, 8, 8, 3, 3, pad_top=1, pad_left=1, activation="relu", layout=Layout.NCHW)
WHOLE = "blocks-registers-filter"
SLICED = "blocks-registers-sliced-filter"
SPLIT = "blocks-registers-split-filter"


def in_vectors(case: Case, sketch: str, width: int, *where: str) -> Iterator[tuple[str, HostPlan]]:
    for what, plan in of_named(case, sketch, GPU_SKETCHES, (f"copy_image == {width}", *where)):
        main = plan.source[plan.source.rindex("__global const float *restrict g_image") :]
        assert f"((__global const float{width} *)g_image)[" in main
        assert not re.search(r"\bg_image\[", main), "a pixel is loaded alone"
        yield what, plan


@pytest.mark.parametrize(("sketch", "width"), [(WHOLE, 4), (SLICED, 2), (SPLIT, 4)])
def test_kernels_are_right(sketch: str, width: int, device: MeasuringChild):
    case = case_of(LAYER)
    judge_plans(case, in_vectors(case, sketch, width), device)


def test_kernels_of_joined_rows_are_right(device: MeasuringChild):
    # One map goes over all pixels, whose channels stand one behind the other.
    pointwise = replace(LAYER, kernel_height=1, kernel_width=1, pad_top=0, pad_left=0)
    case = case_of(replace(pointwise, layout=Layout.NHWC))
    plans = in_vectors(case, "blocks-local-filter", 4, "code(image_local_2) == V4")
    judge_plans(case, plans, device)


@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
def test_kernels_are_clean_in_oclgrind():
    case = case_of(replace(LAYER, stride_x=2))
    judge_plans_in_oclgrind([(case, in_vectors(case, WHOLE, 4))])
