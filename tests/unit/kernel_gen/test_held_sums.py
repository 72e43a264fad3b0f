"""Sums that a work-item holds in private memory while a chunk goes over its tiles."""

from __future__ import annotations

import re

import numpy as np
import pytest

from mapper.ast_model.interpreter import interpret
from mapper.constraint_rules.predicate import ParameterVariable
from mapper.layer_spec import LayerSpec, Layout
from mapper.pipeline import choices_of, generate_kernels
from mapper.profiles import load_profile
from mapper.rewrites.families import Family
from nestmap.tuning.proposals.blocked_proposals import BlockedProposals
from nestmap.tuning.reference import make_workload
from tests.effort import cases
from tests.kernels import run_once
from tests.spaces import derived

pytestmark = pytest.mark.kernels

COUNT = cases(3, 6)
#: Rows and columns that no tile divides, too.
SIZES = {"whole": (8, 14, ""), "ragged": (5, 9, "relu")}


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
    wanted = derived(layer, "blocked-bands", load_profile("pocl"))
    assert wanted.subject.program is not None
    proposals = BlockedProposals(
        layer, "blocked-bands", wanted.subject, wanted.space, wanted.profile, Family.SINGLE, 1
    )
    inputs = make_workload(wanted.subject, 1, {}).inputs
    found = proposals.propose(COUNT)
    assert len(found) == COUNT
    held = 0
    for chosen in found:
        sizes = {v.name: x for v, x in chosen.items() if isinstance(v, ParameterVariable)}
        assert sizes["th"] * sizes["tw"] > sizes["tr"] * sizes["tp"], "one tile holds nothing"
        plan = generate_kernels(wanted.subject, chosen)
        expected = interpret(wanted.subject.program, dict(choices_of(chosen).parameters), inputs)
        np.testing.assert_allclose(run_once(plan, inputs), expected, rtol=1e-3, atol=1e-3)
        main = plan.source[plan.source.rindex("__kernel") :]
        if sizes["v"] == 16 and sizes["bc"] < 32:
            held += 1
            assert re.search(r"float16 p_sum\w*\[\d+\];", main)
            assert "vload" not in main and "vstore" not in main, "calls in PoCL"
    assert held
