"""What tiles of a work-item that works alone are likely to cost on the vectors of a processor.

A model of one core for one tap of one channel: multiply-adds and loads, two of each a cycle, the
latency of a sum that waits for itself, and sums beyond the registers, which go to the stack and
back. Its constants follow measurements through PoCL: on AVX-512, and, where there are 16 registers
of 8 floats, on a Zen 3 with AVX2 (184 candidates of five layers: rank correlation 0.75 to 0.94 by
layer, the best of all among the first six). It chooses which of many draws is worth a build.
"""

from __future__ import annotations

from collections.abc import Mapping

from mapper.cpu_targets import vector_registers
from mapper.device_profile import DeviceProfile
from mapper.rewrites.shape import Shape

_A_CYCLE = 2
#: Of a sum that waits for the one before it, with the load of its factor; where no factor is loaded
#: by the multiply-add itself.
_LATENCY, _LATENCY_16 = 5, 4
#: Vectors that stay in registers; PoCL's compilers (LLVM 14 and 15) leave half of the 32 unused.
_SUMS_IN_REGISTERS = 16
#: A load and a store, and what waits for them, of each sum that has no register.
_SPILLED = 4
#: A vector of weights that is loaded again for each pixel, since sums take all registers (of
#: vgg16/7 in NCHW16c 4 x 4 vectors have 0.72 of the peak, 2 x 7 have 0.85).
_RELOADED = 0.35
#: Of 16 registers: sums that leave half of them to all else, and cycles for each more; for the
#: square of the vectors of weights; all that is best in them, and cycles for each more of it.
_SUMS_OF_16, _CROWDED_OUT = 8, 1.0
_WEIGHTS_BESIDE = 0.2
_ALIVE_OF_16, _MOVED = 18, 0.25
#: What a tap of a channel costs whatever its tile is.
_STARTED = 0.5
#: Cycles for a sum that is held in memory: it is loaded, added to and stored once for each chunk.
_HELD = 1.5
#: Cycles for a vector of weights that comes from the second cache, and bytes of a chunk's weights
#: that stay in the first (32 KiB of it here, beside pixels and sums).
_FROM_AFAR = 2.0
_NEAR_BYTES = 20_480
#: A loop over taps whose places are no constants; of 16 registers it also loads pixels anew.
_ROLLED, _ROLLED_16 = 1.3, 2.0


def lone_cost(
    shape: Shape, profile: DeviceProfile, v: Mapping[str, int], *, held: bool = False
) -> float:
    """Cycles of a core for one multiply-add of a layer with these tuning parameters; sums of other
    tiles may be ``held`` in memory while a chunk of channels is added. A vector that is longer than
    the profile's longest takes several registers."""
    layer = shape.computed
    width = min(v["v"], max(profile.vector_widths))
    vectors, pixels = v["tm"] // width, v["tr"] * v["tp"]
    sums = vectors * pixels
    few = vector_registers(profile.vector_widths) == 16
    # A pixel serves all filters; where each has a channel of its own, each reads its own pixel.
    read = sums if shape.channelwise else pixels
    latency = _LATENCY_16 if few else _LATENCY
    cycles = _STARTED + max(sums / _A_CYCLE, (read + vectors) / _A_CYCLE, latency)
    cycles += _SPILLED * max(0, sums - _SUMS_IN_REGISTERS)
    if few:
        cycles += _crowded(shape, v, vectors, sums)
    else:
        cycles += _RELOADED * min(vectors, max(0, sums + vectors - _SUMS_IN_REGISTERS))
    if held:
        taps = layer.kernel_height * layer.kernel_width
        tiles = v["th"] * v["tw"] // pixels
        near = v["bc"] * taps * v["tm"] * 4 <= _NEAR_BYTES
        cycles += _HELD * sums / (v["bc"] * taps)
        cycles += _FROM_AFAR * vectors / (tiles if near else 1)
    if layer.kernel_height * layer.kernel_width > 1 and not v.get("ut"):
        cycles *= _ROLLED_16 if few else _ROLLED
    height, width_of_all = shape.output_height, shape.output_width
    wasted = (height + v["rho_y"]) * (width_of_all + v["rho_x"]) / (height * width_of_all)
    return cycles * wasted / (sums * width)


def _crowded(shape: Shape, v: Mapping[str, int], vectors: int, sums: int) -> float:
    """Cycles that 16 registers cost: a pixel needs one too, and where taps are written out the
    compiler keeps the pixels of a tile's rows for the taps that read them again."""
    layer = shape.computed
    row = (v["tp"] - 1) * layer.stride_x + layer.window_width
    alive = sums + vectors + (v["tr"] * row if v.get("ut") else 1)
    return (
        _CROWDED_OUT * max(0, sums - _SUMS_OF_16)
        + _WEIGHTS_BESIDE * vectors**2
        + _MOVED * max(0, alive - _ALIVE_OF_16)
    )
