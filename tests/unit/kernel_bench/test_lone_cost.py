"""The cost model of tiles of a work-item that works alone prefers what keeps a core busy."""

from __future__ import annotations

import pytest

from mapper.layer_sets import named_layer
from mapper.rewrites.shape import Shape
from nestmap.kernel_bench.lone_cost import lone_cost

SHAPE = Shape(named_layer("vgg16/7"), False)
TILE = {"tr": 1, "tp": 7, "tm": 32, "v": 16, "ut": 1, "rho_x": 0, "rho_y": 0}


@pytest.mark.parametrize(
    "worse",
    [
        {"tm": 16, "v": 8},
        {"tp": 2},
        {"tr": 4},
        {"tm": 64, "tp": 4},
        {"ut": 0},
        {"tp": 8, "rho_x": 48},
    ],
    ids=[
        "half vectors",
        "sums that wait",
        "sums on the stack",
        "weights that wait for a register",
        "a loop over taps",
        "filling",
    ],
)
def test_a_tile_that_leaves_a_core_idle_costs_more(worse: dict[str, int]) -> None:
    assert lone_cost(SHAPE, {**TILE, **worse}) > lone_cost(SHAPE, TILE)
