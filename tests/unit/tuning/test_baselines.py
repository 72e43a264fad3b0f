"""Plain ways to compute a layer do layers of every kind."""

from __future__ import annotations

import pytest

from mapper.layer_spec import LayerSpec
from mapper.pipeline import subject_of_layer
from nestmap.tuning.baselines import compare_with_baselines
from nestmap.tuning.reference import make_workload
from worker.measuring import MeasuringChild

pytestmark = pytest.mark.kernels

EVERYTHING = LayerSpec(
    4, 7, 6, 8, 3, 2, batch=2, groups=2, dilation_y=2, stride_x=2, pad_top=1, pad_right=2,
    bias=True, activation="leaky_relu", layout="NCHW", name="everything",
)  # fmt: skip


def test_baselines_are_right_for_a_layer_with_everything():
    workload = make_workload(subject_of_layer(EVERYTHING, "high-level"), 0, {})
    assert workload.expected.shape == EVERYTHING.output_shape
    with MeasuringChild() as device:
        contestants = compare_with_baselines(EVERYTHING, workload, device, None, rounds=1)
    assert [c.name for c in contestants] == [
        "sequential loops",
        "one output a work-item",
        "im2col + GEMM",
        "GEMM alone",
    ]
    assert not [c for c in contestants if c.time_ms is None]
    matrix = 4 * 2 * (2 * 3 * 2) * (2 * EVERYTHING.output_height * EVERYTHING.output_width)
    assert contestants[2].extra_bytes == matrix
