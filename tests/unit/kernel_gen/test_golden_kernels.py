"""Kernels of each kind read as they did; they are right by other tests.

Layers, variants or sketches, devices and mappings stand in ``tests/golden/kernels/mappings.json``.
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
from mapper.pipeline import assignment_from_json, derive_space, generate_kernels
from mapper.solver.space import check
from nestmap.device_limits import limits_of_device
from nestmap.tuning.sketch_subjects import layer_in
from tests.conftest import GOLDEN_FOLDER

CASES: dict[str, Any] = json.loads((GOLDEN_FOLDER / "kernels" / "mappings.json").read_text())


@cache
def plan_of(name: str) -> HostPlan:
    case = CASES[name]
    device = limits_of_device(case["device"])
    subject = layer_in(LayerSpec.from_json(case["layer"]), case["variant"], device)
    space = derive_space(subject, Mode.STRICT, device, RuleOptions())
    chosen = assignment_from_json(space, case["choices"])
    assert check(space, chosen) == ()
    return generate_kernels(subject, chosen)


@pytest.mark.parametrize("name", CASES)
def test_kernels_read_as_they_did(golden: Callable[[str, str], None], name: str):
    golden(f"kernels/{name}.cl", plan_of(name).source)


@pytest.mark.parametrize(
    ("name", "marks"),
    [
        ("blocks_local", ("float4", "l_image_local[", "barrier(CLK_LOCAL_MEM_FENCE)")),
        (
            "blocks_local_prefetch",
            ("p_next_image", "r_product_in_tile_tile_next", "loads for the next iteration"),
        ),
        (
            "blocks_local_two_buffers",
            ("(r_product_in_tile_tile%2)*", "r_product_in_tile_tile_next", "barriers: 1\n"),
        ),
        ("blocks_sliced", ("l_product_in_tile_in_tile_tile_parts[", "store4_private(")),
        ("blocks_sliced_half_relu", ("store2_private(", "vstore_half_rte(", "fmax(")),
        ("blocks_local_sums_in_vectors", ("store2_private(", "load2_private(")),
        ("blocks_split", ("k_convolution_parts", "i_product_in_tile_part", "in_tile_sum")),
        ("blocks_registers", ("((__global const float4 *)g_image)[", "p_image_local_private")),
        ("blocks_halo_strided", ("l_image_local[", "stride 2")),
        ("blocks_local_grouped", ("c_G = 2, c_C = 2", "l_image_local[")),
        ("blocks_local_pointwise", ("c_kh = 1, c_kw = 1", "row_column")),
        ("blocks_local_half", ("vload_half(", "vstore_half_rte(", "const half *restrict g_image")),
        ("blocks_bands", ("float16 p_sum[96]", "float16 p_product_tile_tile_sums_0", "fmax(")),
        ("tile_bordered_packed", ("k_image_bordered", "k_weights_packed", "(float4)")),
        ("tile_bias_relu", ("g_bias", "fmax(")),
        ("tile_ragged", ("inside_1", "if (i_")),
        ("tile_windows_strided", ("stride 2", "k_image_bordered")),
        ("tile_depthwise", ("c_G = 4, c_C = 1",)),
        ("tile_in_blocks", ("float [1][2][6][8][16]", "float16 p_sum", "i_image_bordered")),
    ],
)
def test_each_kind_has_what_it_is_there_for(name: str, marks: tuple[str, ...]):
    for mark in marks:
        assert mark in plan_of(name).source, mark


def test_every_golden_kernel_is_of_a_case():
    files = {path.stem for path in Path(GOLDEN_FOLDER / "kernels").glob("*.cl")}
    others = {"direct_small", "partial_small", "table1_m4_local", "table1_m6_global"}
    assert files == set(CASES) | others
