"""Kernels of each kind read as they did; they are right by other tests.

Layers, variants and mappings stand in ``tests/golden/kernels/mappings.json``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.host_plan import HostPlan
from mapper.layer_spec import LayerSpec
from mapper.pipeline import assignment_from_json, derive_space, generate_kernels, subject_of_layer
from mapper.solver.space import check
from nestmap.device_limits import limits_of_device
from tests.conftest import GOLDEN_FOLDER

CASES: dict[str, Any] = json.loads((GOLDEN_FOLDER / "kernels" / "mappings.json").read_text())


@cache
def plan_of(name: str) -> HostPlan:
    case = CASES[name]
    subject = subject_of_layer(LayerSpec.from_json(case["layer"]), case["variant"])
    space = derive_space(subject, Mode.STRICT, limits_of_device("pocl+half"), RuleOptions())
    chosen = assignment_from_json(space, case["choices"])
    assert check(space, chosen) == ()
    return generate_kernels(subject, chosen)


@pytest.mark.parametrize("name", CASES)
def test_kernels_read_as_they_did(golden: Callable[[str, str], None], name: str):
    golden(f"kernels/{name}.cl", plan_of(name).source)


@pytest.mark.parametrize(
    ("name", "marks"),
    [
        ("tiled", ("float4", "l_image[", "barrier(CLK_LOCAL_MEM_FENCE)")),
        ("tiled_prefetch", ("p_next_image", "r_chunk_next", "loads for the next iteration")),
        ("tiled_two_buffers", ("(r_chunk%2)*", "r_chunk_next", "barriers: 1\n")),
        ("tiled_split", ("k_partial_sums", "i_split", "r_part")),
        ("blocked_in_place_ragged", ("inside_1", "if (i_")),
        ("blocked_bias_relu", ("g_bias", "fmax(")),
        ("blocked_bands", ("float16 p_sum[96]", "p_sum[f_item_mo*12] + p_sum2_0_0_0", "fmax(")),
        ("tiled_half", ("vload_half(", "vstore_half_rte(", "const half *restrict g_image")),
        ("tiled_pointwise", ("c_kh = 1, c_kw = 1",)),
        ("blocked_depthwise", ("c_G = 4, c_C = 1",)),
        ("blocked_in_blocks", ("float [1][2][6][8][16]", "float16 p_sum", "i_pad_block")),
    ],
)
def test_each_kind_has_what_it_is_there_for(name: str, marks: tuple[str, ...]):
    for mark in marks:
        assert mark in plan_of(name).source, mark


def test_every_golden_kernel_is_of_a_case():
    files = {path.stem for path in Path(GOLDEN_FOLDER / "kernels").glob("*.cl")}
    others = {"direct_small", "partial_small", "table1_m4_local", "table1_m6_global"}
    assert files == set(CASES) | others
