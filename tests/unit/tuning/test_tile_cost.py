"""The cost model of tiles prefers what is faster on every GPU."""

from __future__ import annotations

import pytest

from mapper.layer_sets import named_layer
from mapper.profiles import load_profile
from mapper.rewrites.shape import Shape
from nestmap.tuning.proposals.tile_cost import tile_cost

H200 = load_profile("h200")
SHAPE = Shape(named_layer("vgg16/2"), False)
TILE = {
    **{"bm": 32, "th": 16, "tw": 16, "bc": 4, "tr": 4, "tp": 4, "tm": 4, "mi": 4, "v": 4},
    **{"pv": 4, "wide": 2, "pf": 0, "flat_copy": 0},
}


@pytest.mark.parametrize(
    "worse",
    [
        {"tr": 1, "tp": 1, "tm": 1, "th": 4, "tw": 4, "bm": 8},
        {"v": 1},
        {"bc": 1},
        {"bm": 64, "th": 112, "tw": 56, "tr": 28, "tp": 14},
    ],
    ids=["no reuse", "scalar loads", "a barrier a channel", "a few groups for all processors"],
)
def test_a_tile_that_wastes_costs_more(worse: dict[str, int]) -> None:
    assert tile_cost(SHAPE, H200, {**TILE, **worse}) > tile_cost(SHAPE, H200, TILE)


def test_a_split_helps_where_groups_are_few() -> None:
    small = Shape(named_layer("vgg16/24"), False)
    tile = {**TILE, "th": 14, "tw": 14, "tr": 14, "tp": 1, "tm": 2, "v": 2, "wide": 0, "pv": 1}
    assert tile_cost(small, H200, {**tile, "sp": 16}) < tile_cost(small, H200, tile)
