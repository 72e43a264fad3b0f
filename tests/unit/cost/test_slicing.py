"""The slicing cost model with numbers worked out by hand from the paper's equations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mapper.cost.slicing import (
    Caches,
    Order,
    Slicing,
    Tile,
    TileBytes,
    best_slicing,
    sliced,
    slicing_cost,
    tile_bytes,
)
from mapper.errors import InputError
from mapper.layer_spec import LayerSpec

#: 64 channels of 32 x 32 to 128 filters of 3 x 3, padded: 1,024 windows.
LAYER = LayerSpec(64, 32, 32, 128, pad_top=1, pad_left=1, pad_bottom=1, pad_right=1)
TILE = Tile(windows=16, filters=8)
CACHES = Caches(32 * 1024, 256 * 1024, 2 * 1024 * 1024, 64)


def test_equation_1_sizes_of_tiles() -> None:
    # 16 x 32 x 9 x 4, 8 x 32 x 9 x 4, 16 x 8 x 4.
    assert tile_bytes(LAYER, TILE, 32) == TileBytes(18_432, 9_216, 512)
    assert tile_bytes(LAYER, TILE, 32).together == 28_160


def test_equation_2_halves_channels_until_tiles_fit() -> None:
    # 64 channels need 55,808 bytes, 32 need 28,160 of 32,768.
    assert sliced(LAYER, TILE, CACHES, Order.INPUT_STATIONARY).channels == 32
    half = replace(CACHES, l1_share=0.5)
    assert sliced(LAYER, TILE, half, Order.INPUT_STATIONARY).channels == 16
    with pytest.raises(InputError, match="first-level cache"):
        sliced(LAYER, Tile(512, 512), CACHES, Order.INPUT_STATIONARY)


def test_equations_4_and_5_halve_what_the_caches_keep() -> None:
    # Equation 3: 64 input tiles and 16 filter tiles.
    # K2 = 16: 18,432 + 16 x (9,216 + 512) = 174,080 fits into 262,144.
    # K3 = 64: 64 x 18,432 + 16 x 9,216 + 1,024 x 512 = 1,851,392 fits into 2,097,152.
    found = sliced(LAYER, TILE, CACHES, Order.INPUT_STATIONARY)
    assert found == Slicing(Order.INPUT_STATIONARY, 32, 16, 64)
    # Half of L2 leaves K2 = 8: 18,432 + 8 x 9,728 = 96,256; then K3 = 64 needs
    # 1,179,648 + 73,728 + 262,144 = 1,515,520, and half of L3 has K3 = 32: 884,736.
    small = replace(CACHES, l2_share=0.5, l3_share=0.5)
    assert sliced(LAYER, TILE, small, Order.INPUT_STATIONARY) == Slicing(
        Order.INPUT_STATIONARY, 32, 8, 32
    )


def test_cost_where_all_stays_in_the_caches() -> None:
    cost = slicing_cost(LAYER, TILE, CACHES, Slicing(Order.INPUT_STATIONARY, 32, 16, 64))
    # Equation 8: 2 sets x (64 x 18,432 + 16 x 9,216) / 64 = 41,472; nothing is loaded again.
    assert cost.memory_lines == 41_472
    assert cost.l3_lines == 0
    # Equation 14: 2 x 63 x 16 x 9,216 / 64 = 290,304.
    assert cost.l2_lines == 290_304
    # Equation 6 with 200, 50 and 14 cycles.
    assert cost.cycles == 200 * 41_472 + 14 * 290_304


def test_cost_where_tiles_are_loaded_again() -> None:
    cost = slicing_cost(LAYER, TILE, CACHES, Slicing(Order.INPUT_STATIONARY, 32, 8, 32))
    # Equations 9 to 11: one more set of filters, one of inputs: 2 x 1 x 1 x 16 x 9,216 / 64.
    assert cost.memory_lines == 41_472 + 4_608
    # Equations 12 and 13: 2 x 1 x 64 x 18,432 / 64.
    assert cost.l3_lines == 36_864


def test_weight_stationary_exchanges_the_tiles() -> None:
    cost = slicing_cost(LAYER, TILE, CACHES, Slicing(Order.WEIGHT_STATIONARY, 32, 64, 16))
    assert cost.memory_lines == 41_472
    # Equation 14 exchanged: 2 x 15 x 64 x 18,432 / 64.
    assert cost.l2_lines == 552_960


def test_the_cheaper_order_is_chosen() -> None:
    slicing, cost = best_slicing(LAYER, TILE, CACHES)
    others = [
        slicing_cost(LAYER, TILE, CACHES, sliced(LAYER, TILE, CACHES, order)) for order in Order
    ]
    assert cost.cycles == min(other.cycles for other in others)
    assert slicing.order is Order.INPUT_STATIONARY


def test_tiles_at_the_edges_count_as_tiles() -> None:
    ragged = replace(LAYER, filters=100)
    even = slicing_cost(ragged, TILE, CACHES, Slicing(Order.INPUT_STATIONARY, 32, 13, 64))
    # 13 tiles of filters, the last of 4.
    assert even.memory_lines == 2 * (64 * 18_432 + 13 * 9_216) / 64


@pytest.mark.parametrize("broken", [{"l1_bytes": 0}, {"l2_share": 0.0}, {"l3_share": 1.5}])
def test_impossible_caches_are_refused(broken: dict[str, float]) -> None:
    with pytest.raises(InputError):
        replace(CACHES, **broken)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError):
        Tile(0, 4)
