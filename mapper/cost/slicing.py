"""The convolution slicing analysis and its cost model, for devices with caches.

"Advancing Direct Convolution Using Convolution Slicing Optimization and ISA Extensions" (SConv),
section 4.1, equations 1 to 14. A convolution becomes tiles of ``windows`` windows and of
``filters`` filters over ``channels`` channels. One kind of tile is kept in the first-level cache
(the stationary one) while tiles of the other kind stream past it; the numbers of tiles that stay
in the second and third level are K2 and K3. The order with the lower cost is the better one.

Where numbers do not divide, tiles are smaller (section 4.1): tiles and sets of tiles are counted
rounded up, where the paper's equations have fractions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mapper.errors import InputError, Problem
from mapper.layer_spec import LayerSpec


class Order(StrEnum):
    """Which tile stays in the first-level cache while the other kind streams."""

    INPUT_STATIONARY = "input-stationary"
    WEIGHT_STATIONARY = "weight-stationary"


@dataclass(frozen=True, slots=True)
class Caches:
    """Sizes in bytes, what may be used of each (the paper's alpha, beta, gamma), the line in
    bytes, and the cycles of a load from each level."""

    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    line_bytes: int = 64
    l1_share: float = 1.0
    l2_share: float = 1.0
    l3_share: float = 1.0
    l2_cycles: float = 14.0
    l3_cycles: float = 50.0
    memory_cycles: float = 200.0

    def __post_init__(self) -> None:
        sizes = (self.l1_bytes, self.l2_bytes, self.l3_bytes, self.line_bytes)
        if min(sizes) < 1:
            raise InputError(Problem("caches", "sizes must be positive", str(sizes)))
        shares = (self.l1_share, self.l2_share, self.l3_share)
        if not all(0 < share <= 1 for share in shares):
            raise InputError(
                Problem("caches", "a share is outside its range", str(shares), "(0, 1]")
            )


@dataclass(frozen=True, slots=True)
class Tile:
    """The micro-kernel's choice: windows (N_win) and filters (N_f) of a tile."""

    windows: int
    filters: int

    def __post_init__(self) -> None:
        if min(self.windows, self.filters) < 1:
            found = f"{self.windows} x {self.filters}"
            raise InputError(Problem("tile", "must have a window and a filter", found))


@dataclass(frozen=True, slots=True)
class TileBytes:
    """|IN^T|, |FS^T| and |OUT^T|: equation 1."""

    image: int
    filters: int
    output: int

    @property
    def together(self) -> int:
        """What one step of the micro-kernel touches."""
        return self.image + self.filters + self.output


def tile_bytes(layer: LayerSpec, tile: Tile, channels: int, element_bytes: int = 4) -> TileBytes:
    """Equation 1, for ``channels`` (N_c) input channels."""
    window = channels * layer.kernel_height * layer.kernel_width * element_bytes
    return TileBytes(
        tile.windows * window, tile.filters * window, tile.windows * tile.filters * element_bytes
    )


@dataclass(frozen=True, slots=True)
class Slicing:
    """A tiling strategy: order, channels of a set (N_c), and tiles kept in L2 and L3 (K2, K3)."""

    order: Order
    channels: int
    k2: int
    k3: int


@dataclass(frozen=True, slots=True)
class SlicingCost:
    """Cache lines loaded from each level, and cycles altogether: equations 6 to 14."""

    memory_lines: float
    l3_lines: float
    l2_lines: float
    cycles: float


def sliced(
    layer: LayerSpec, tile: Tile, caches: Caches, order: Order, element_bytes: int = 4
) -> Slicing:
    """The paper's heuristic: channels, K2 and K3 start at their most and are halved until
    equations 2, 4 and 5 hold.

    InputError if a single channel does not fit into the first-level cache.
    """
    channels = layer.channels // layer.groups
    while (
        tile_bytes(layer, tile, channels, element_bytes).together
        > caches.l1_bytes * caches.l1_share
    ):
        if channels == 1:
            found = tile_bytes(layer, tile, 1, element_bytes).together
            raise InputError(
                Problem("tile", "does not fit into the first-level cache", f"{found} bytes",
                        f"{caches.l1_bytes * caches.l1_share:.0f} bytes", "a smaller tile")
            )  # fmt: skip
        channels //= 2
    stays, streams = _sides(layer, tile, channels, order, element_bytes)
    output = tile_bytes(layer, tile, channels, element_bytes).output
    k2 = streams.number
    while k2 > 1 and (
        stays.bytes + k2 * (streams.bytes + output) > caches.l2_bytes * caches.l2_share
    ):
        k2 //= 2
    k3 = stays.number
    while k3 > 1 and (
        k3 * stays.bytes + k2 * streams.bytes + k2 * k3 * output > caches.l3_bytes * caches.l3_share
    ):
        k3 //= 2
    return Slicing(order, channels, k2, k3)


def slicing_cost(
    layer: LayerSpec, tile: Tile, caches: Caches, slicing: Slicing, element_bytes: int = 4
) -> SlicingCost:
    """Equations 6 to 14, of the input-stationary order, or with tiles exchanged."""
    stays, streams = _sides(layer, tile, slicing.channels, slicing.order, element_bytes)
    sets = _ceil(layer.channels // layer.groups, slicing.channels) * layer.groups * layer.batch
    line = caches.line_bytes
    # Equations 9, 10 and 12.
    more_streams = _ceil(streams.number, slicing.k2) - 1
    more_stays = _ceil(stays.number, slicing.k3) - 1
    reloads = min(more_streams, 1)
    # Equations 8 and 11, together 7.
    cold = sets * (stays.number * stays.bytes + streams.number * streams.bytes) / line
    again = sets * reloads * more_stays * streams.number * streams.bytes / line
    # Equation 13 and equation 14.
    l3_lines = sets * more_streams * stays.number * stays.bytes / line
    l2_lines = sets * (stays.number - 1) * streams.number * streams.bytes / line
    cycles = (
        caches.memory_cycles * (cold + again)
        + caches.l3_cycles * l3_lines
        + caches.l2_cycles * l2_lines
    )
    return SlicingCost(cold + again, l3_lines, l2_lines, cycles)


def best_slicing(
    layer: LayerSpec, tile: Tile, caches: Caches, element_bytes: int = 4
) -> tuple[Slicing, SlicingCost]:
    """The cheaper of the two orders; input-stationary where both cost the same."""
    found = [sliced(layer, tile, caches, order, element_bytes) for order in Order]
    priced = [(s, slicing_cost(layer, tile, caches, s, element_bytes)) for s in found]
    return min(priced, key=lambda pair: pair[1].cycles)


@dataclass(frozen=True, slots=True)
class _Side:
    """Tiles of one kind: how many there are for a set of channels, and the bytes of each."""

    number: int
    bytes: int


def _sides(
    layer: LayerSpec, tile: Tile, channels: int, order: Order, element_bytes: int
) -> tuple[_Side, _Side]:
    """The stationary and the streaming side: numbers by equation 3, bytes by equation 1."""
    bytes_of = tile_bytes(layer, tile, channels, element_bytes)
    pixels = layer.output_height * layer.output_width
    image = _Side(_ceil(pixels, tile.windows), bytes_of.image)
    filters = _Side(_ceil(layer.filters // layer.groups, tile.filters), bytes_of.filters)
    return (image, filters) if order is Order.INPUT_STATIONARY else (filters, image)


def _ceil(number: int, divisor: int) -> int:
    return -(-number // divisor)
