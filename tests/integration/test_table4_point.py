"""The best point of GPGPU'20, Table 4, for layer 7: expressible, valid and numerically right."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.layer_sets import named_layer
from mapper.pipeline import assignment_from_json, derive_space, generate_kernels, subject_of_layer
from mapper.profiles import load_profile
from mapper.solver.space import check
from tests.kernels import run_once
from tests.unit.programs.test_convolution_programs import naive_convolution

pytestmark = pytest.mark.kernels

# Tables 1 and 4: tiles and filter groups are work-groups, window groups and chunks threads.
POINT = {
    "parameters": {
        "theta": 5,
        "rho": 11,
        "kappa": 4,
        "sigma": 3,
        "omega": 144,
        "upsilon": 4,
        "unroll": 0,
        "coalesce": 1,
    },
    "mapping": {
        "pad_row": "G1",
        "pad_column": "G0",
        "pad_channel": "S",
        "tile_row": "W1",
        "tile_column": "F",
        "filter_group": "W0",
        "window_group": "L1",
        "chunk": "L0",
        "init_window": "S",
        "init_filter": "F",
        "fetch": "S",
        "accumulate_window": "S",
        "accumulate_filter": "S",
        "store": "S",
        "store_window": "F",
        "store_filter": "F",
        "sum_row": "W1",
        "sum_column": "F",
        "sum_group": "W0",
        "sum_filter": "L0",
        "sum_window_group": "L1",
        "sum_window": "F",
        "crop_row": "G1",
        "crop_column": "G0",
        "crop_filter": "S",
    },
    "local_sizes": {
        "padded": [5, 5, 1],
        "partial": [8, 3, 1],
        "summed": [4, 9, 1],
        "cropped": [8, 8, 1],
    },
}


def test_table4_point_of_layer_7_is_valid_and_right() -> None:
    layer = named_layer("vgg16/7")
    subject = subject_of_layer(layer, "partial")
    space = derive_space(subject, Mode.STRICT, load_profile("mali-g72"), RuleOptions())
    chosen = assignment_from_json(space, POINT)
    assert check(space, chosen) == ()
    plan = generate_kernels(subject, chosen)
    assert plan.launches[1].local_size == (8, 3, 1)
    rng = np.random.default_rng(5)
    inputs = {
        "image": rng.standard_normal((112, 112, 128)).astype(np.float32),
        "weights": rng.standard_normal((128, 3, 3, 128)).astype(np.float32),
    }
    result = run_once(plan, inputs)
    expected = naive_convolution(layer, inputs["image"], inputs["weights"])
    # 1152 products of standard normals: their sum has a standard deviation of 34.
    np.testing.assert_allclose(result, expected, atol=34 * 1152**0.5 * 6e-8 * 4, rtol=0)
