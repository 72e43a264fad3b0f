"""What a model of one core holds of sums that wait in memory while a chunk serves other tiles."""

from __future__ import annotations

from mapper.layer_sets import named_layer
from mapper.profiles import load_profile
from mapper.rewrites.shape import Shape
from nestmap.tuning.proposals.lone_cost import lone_cost

PROFILE = load_profile("pocl")
SHAPE = Shape(named_layer("vgg16/7"), False)
TILE = {"tm": 32, "tr": 1, "tp": 7, "v": 16, "ut": 1, "rho_x": 0, "rho_y": 0}


def cost(bc: int, th: int, tw: int) -> float:
    return lone_cost(SHAPE, PROFILE, TILE | {"bc": bc, "th": th, "tw": tw}, held=True)


def test_a_chunk_whose_weights_stay_near_is_cheaper_the_more_tiles_it_serves() -> None:
    assert cost(16, 4, 28) < cost(16, 2, 14) < cost(16, 1, 14)


def test_a_chunk_too_large_for_the_first_cache_brings_its_weights_anew_for_each_tile() -> None:
    assert cost(32, 4, 28) == cost(32, 1, 14) > cost(16, 4, 28)


def test_small_chunks_pay_for_sums_that_go_to_memory_and_back() -> None:
    assert cost(1, 4, 28) > cost(4, 4, 28) > cost(16, 4, 28)
