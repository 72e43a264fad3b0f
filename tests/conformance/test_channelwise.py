"""Depthwise kernels with channels in the lanes of vectors: right on PoCL, clean in Oclgrind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from mapper.host_plan import HostPlan
from mapper.layer_spec import Activation, LayerSpec, Layout
from tests.conformance.judging import (
    PROCESSOR_SKETCHES,
    Case,
    case_of,
    judge_plans,
    judge_plans_in_oclgrind,
    of_named,
)
from worker.measuring import MeasuringChild

pytestmark = pytest.mark.kernels

LAYER = LayerSpec(32, 7, 9, 32, 3, 3, 1, 1, 1, 1, groups=32, layout=Layout.NHWC)
#: The image as it is, and written with its border before.
PLAIN, BORDERED = "tile-packed-group", "tile-bordered-packed-group"


def in_lanes(case: Case, sketch: str) -> Iterator[tuple[str, HostPlan]]:
    lanes = 8 if case.layer.groups % 8 == 0 else 2
    where = (f"lanes_group == {lanes}", f"code(group_in_tile_in_tile) == V{lanes}")
    image = "g_image_bordered" if sketch == BORDERED else "g_image"
    for what, plan in of_named(case, sketch, PROCESSOR_SKETCHES, where):
        main = plan.source[plan.source.rindex("__kernel") :]
        assert f"((__global const float{lanes} *){image})[" in main
        assert not re.search(rf"\b{image}\[", main), "a channel is read alone"
        yield what, plan


@pytest.mark.parametrize(
    ("changes", "sketch"),
    [
        ({}, PLAIN),
        ({}, BORDERED),
        ({"stride_y": 2, "stride_x": 2, "pad_top": 0, "pad_left": 0}, PLAIN),
        ({"dilation_y": 2, "dilation_x": 2, "batch": 2, "bias": True}, BORDERED),
        ({"channels": 6, "filters": 6, "groups": 6, "activation": Activation.RELU6}, PLAIN),
        ({"kernel_height": 1, "kernel_width": 5, "pad_left": 2, "pad_right": 2}, BORDERED),
    ],
    ids=str,
)
def test_kernels_of_all_that_a_layer_may_be_are_right(
    changes: dict[str, Any], sketch: str, device: MeasuringChild
):
    case = case_of(replace(LAYER, **changes))
    judge_plans(case, in_lanes(case, sketch), device)


@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
def test_kernels_are_clean_in_oclgrind():
    case = case_of(replace(LAYER, stride_x=2, bias=True))
    judge_plans_in_oclgrind((case, in_lanes(case, sketch)) for sketch in (PLAIN, BORDERED))
