"""The cost model of tiles of a work-item that works alone prefers what keeps a core busy."""

from __future__ import annotations

import pytest

from mapper.layer_sets import named_layer
from mapper.profiles import load_profile
from mapper.rewrites.shape import Shape
from nestmap.device_limits import limits_of_device
from nestmap.tuning.proposals.lone_cost import lone_cost

PROFILE, AVX2 = load_profile("pocl"), limits_of_device("pocl@haswell")
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
    assert lone_cost(SHAPE, PROFILE, {**TILE, **worse}) > lone_cost(SHAPE, PROFILE, TILE)


#: Two vectors of 4 pixels, among the best of every layer that was measured on AVX2.
TILE_16 = {"tr": 1, "tp": 4, "tm": 16, "v": 8, "ut": 1, "rho_x": 0, "rho_y": 0}


@pytest.mark.parametrize(
    "worse",
    [
        {"tm": 8, "v": 4},
        {"tp": 2},
        {"tp": 7},
        {"tm": 32, "tp": 2},
        {"tm": 8, "tr": 8, "tp": 1},
        {"ut": 0},
    ],
    ids=[
        "half vectors",
        "sums that wait",
        "sums that leave no register to pixels",
        "weights that leave none",
        "rows of pixels that are kept for other taps",
        "a loop over taps",
    ],
)
def test_on_16_registers_a_tile_leaves_half_of_them_to_what_it_reads(
    worse: dict[str, int],
) -> None:
    assert lone_cost(SHAPE, AVX2, {**TILE_16, **worse}) > lone_cost(SHAPE, AVX2, TILE_16)


def test_a_vector_of_two_registers_is_no_better_than_two_of_one() -> None:
    assert lone_cost(SHAPE, AVX2, {**TILE_16, "v": 16}) == lone_cost(SHAPE, AVX2, TILE_16)
    assert lone_cost(SHAPE, AVX2, TILE) > lone_cost(SHAPE, AVX2, TILE_16)
