"""Private arrays of floats are read and written by functions of ours, never through pointers to
vectors. (Of those that are accessed in whole vectors only, see test_vector_copies.)

PoCL 3.0-rc2 (LLVM 14) lost accumulators that were stored through such a pointer, right in Oclgrind
and without optimisation. With vload and vstore in their place the kernel below is wrong for most
targets (test_campaign_faults).
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from mapper.layer_spec import LayerSpec
from nestmap.tuning.reference import convolve
from tests.conformance.random_layers import inputs_of
from tests.kernels import run_once
from tests.unit.kernel_gen.test_golden_kernels import CASES, plan_of

pytestmark = pytest.mark.kernels

NAME = "blocks_local_sums_in_vectors"


def test_accumulators_in_vectors_are_right_on_pocl() -> None:
    plan = plan_of(NAME)
    assert re.search(r"\bfloat p_sum\[\d+\]", plan.source)
    assert "((__private float" not in plan.source and "store2_private(" in plan.source
    layer = LayerSpec.from_json(CASES[NAME]["layer"])
    inputs = inputs_of(layer, 1)
    expected = convolve(layer, **inputs)
    np.testing.assert_allclose(run_once(plan, inputs), expected, rtol=1e-4, atol=1e-4)
