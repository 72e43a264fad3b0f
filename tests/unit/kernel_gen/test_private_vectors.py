"""Private arrays of floats are read and written by vload and vstore, never through pointers to
vectors. (Of those that are accessed in whole vectors only, see test_vector_copies.)

PoCL 3.0-rc2 (LLVM 14) lost accumulators that were stored through such a pointer. The kernel below
was one of them: right in Oclgrind and without optimisation, wrong on PoCL.
"""

from __future__ import annotations

import numpy as np
import pytest

from mapper.ast_model.interpreter import interpret
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.layer_spec import LayerSpec
from mapper.pipeline import (
    assignment_from_json,
    choices_of,
    derive_space,
    generate_kernels,
    subject_of_layer,
)
from mapper.profiles import load_profile
from mapper.solver.space import check
from nestmap.tuning.reference import make_workload
from tests.kernels import run_once

pytestmark = pytest.mark.kernels

LAYER = LayerSpec(
    channels=12, height=1, width=11, filters=4, kernel_height=1, kernel_width=1, stride_x=2,
    batch=2, bias=True, activation="relu6", layout="NCHW",
)  # fmt: skip
CODES = {
    21: "pack_group", 0: "pack_block group tile_x zero_y weight_v item_y patch_y tap r m slice_y"
    " out_w start_cell add_cell out_v", 20: "image", 22: "tile_y",
    10: "pack_channel block", 11: "zero_k image_c weight_c item_k slice_k out_x",
    12: "zero_mo image_y weight_tap item_mo slice_mo out_mi",
    1: "pack_tap pack_filter zero_x zero_mi zero_r zero_p zero_m image_x weight_m item_x item_mi"
    " patch_x patch_v tap_m p slice_x slice_mi slice_r slice_p slice_m out_mo out_y add_v out_cell",
    2: "zero_v tap_v v slice_v start_v",
}  # fmt: skip
PARAMETERS = {
    "bm": 4, "th": 1, "tw": 8, "bc": 12, "tr": 1, "tp": 4, "tm": 2, "mi": 2, "v": 2, "rho_y": 0,
    "rho_x": 2, "pv": 1, "wide": 0, "pf": 1, "ks": 6, "ka": 1,
}  # fmt: skip
CHOICES = {
    "mapping": {map_id: code for code, maps in CODES.items() for map_id in maps.split()},
    "parameters": PARAMETERS,
    "local_sizes": {"packed": [24, 1, 1], "convolution": [1, 6, 1]},
}


def test_accumulators_in_vectors_are_right_on_pocl() -> None:
    subject = subject_of_layer(LAYER, "tiled-slices")
    space = derive_space(subject, Mode.STRICT, load_profile("pocl"), RuleOptions())
    chosen = assignment_from_json(space, CHOICES)
    assert check(space, chosen) == ()
    plan = generate_kernels(subject, chosen)
    assert "((__private float" not in plan.source and "store2_private(" in plan.source
    inputs = make_workload(subject, 1, {}).inputs
    assert subject.program is not None
    expected = interpret(subject.program, dict(choices_of(chosen).parameters), inputs)
    np.testing.assert_allclose(run_once(plan, inputs), expected, rtol=1e-4, atol=1e-4)
