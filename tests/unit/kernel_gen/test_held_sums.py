"""Sums that a work-item holds in private memory while a chunk goes over its tiles."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from mapper.ast_model.interpreter import interpret
from mapper.constraint_rules.catalogue import DEFAULT_OPTIONS
from mapper.constraint_rules.rule import Mode
from mapper.layer_spec import LayerSpec, Layout
from mapper.pipeline import choices_of, derive_space, generate_kernels
from mapper.profiles import load_profile
from mapper.solver.factored.suited import SuitedSpace
from mapper.tuning_space.where import with_where
from nestmap.tuning.reference import make_workload
from nestmap.tuning.sketch_subjects import layer_in, with_suits
from tests.effort import cases
from tests.kernels import run_once

pytestmark = pytest.mark.kernels

COUNT = cases(3, 6)
#: Rows and columns that no tile divides, too.
SIZES = {"whole": (8, 14, ""), "ragged": (5, 9, "relu")}
WHERE = (
    "lanes_filter == 16",
    # One chunk, or one tile, holds nothing.
    "chunk_convolution < 32",
    "own_row*own_column*own_filter < tile_row*tile_column*tile_filter",
    # Up to 16 vectors are variables.
    "tile_row*tile_column*tile_filter > 16*16",
)


@pytest.mark.parametrize("layout", [Layout.NCHW16C, Layout.NHWC])
@pytest.mark.parametrize("size", SIZES)
def test_bands_of_tiles_are_right_and_hold_their_sums_in_whole_vectors(
    size: str, layout: Layout
) -> None:
    height, width, activation = SIZES[size]
    layer = LayerSpec(
        channels=32, height=height, width=width, filters=32, kernel_height=3, kernel_width=3,
        pad_top=1, pad_left=1, pad_bottom=1, pad_right=1, bias=bool(activation),
        activation=activation or "none", layout=layout,
    )  # fmt: skip
    device = load_profile("pocl")
    subject = layer_in(layer, "blocks-bordered-packed-filter", device)
    space = derive_space(subject, Mode.STRICT, device, with_suits(subject, DEFAULT_OPTIONS))
    suited, random = SuitedSpace(with_where(space, WHERE)), Random(1)
    inputs = make_workload(subject, 1, {}).inputs
    for _ in range(COUNT):
        chosen = suited.draw_joint(random)
        assert chosen is not None
        sizes = choices_of(chosen).parameters
        plan = generate_kernels(subject, chosen)
        expected = interpret(subject.require_program(), sizes, inputs)
        np.testing.assert_allclose(run_once(plan, inputs), expected, rtol=1e-3, atol=1e-3)
        main = plan.source[plan.source.rindex("__kernel") :]
        vectors = sizes["tile_row"] * sizes["tile_column"] * sizes["tile_filter"] // 16
        assert f"float16 p_sum[{vectors}];" in main
        assert "vload" not in main and "vstore" not in main, "calls in PoCL"
