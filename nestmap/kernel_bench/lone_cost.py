"""What tiles of a work-item that works alone are likely to cost on the vectors of a processor.

A model of one core for one tap of one channel: multiply-adds and loads, two of each a cycle, the
latency of a sum that waits for itself, and sums beyond the registers, which go to the stack and
back. Its constants follow measurements on AVX-512 through PoCL. It chooses which of many draws is
worth a build.
"""

from __future__ import annotations

from collections.abc import Mapping

from mapper.rewrites.shape import Shape

_A_CYCLE = 2
#: Of a sum that waits for the one before it, with the load of its factor.
_LATENCY = 5
#: Vectors that stay in registers; PoCL's compilers (LLVM 14 and 15) leave half of the 32 unused.
_SUMS_IN_REGISTERS = 16
#: A load and a store, and what waits for them, of each sum that has no register.
_SPILLED = 4
#: A vector of weights that is loaded again for each pixel, since sums take all registers (of
#: vgg16/7 in NCHW16c 4 x 4 vectors have 0.72 of the peak, 2 x 7 have 0.85).
_RELOADED = 0.35
#: What a tap of a channel costs whatever its tile is.
_STARTED = 0.5
#: Cycles for a sum that is held in memory: it is loaded, added to and stored once for each chunk.
_HELD = 1.5
#: Cycles for a vector of weights that comes from the second cache, and bytes of a chunk's weights
#: that stay in the first (32 KiB of it here, beside pixels and sums).
_FROM_AFAR = 2.0
_NEAR_BYTES = 20_480
#: A loop over taps whose places are no constants.
_ROLLED = 1.3


def lone_cost(shape: Shape, v: Mapping[str, int], *, held: bool = False) -> float:
    """Cycles of a core for one multiply-add of a layer with these tuning parameters; sums of other
    tiles may be ``held`` in memory while a chunk of channels is added."""
    layer = shape.computed
    vectors, pixels = v["tm"] // v["v"], v["tr"] * v["tp"]
    sums = vectors * pixels
    # A pixel serves all filters; where each has a channel of its own, each reads its own pixel.
    read = sums if shape.channelwise else pixels
    cycles = _STARTED + max(sums / _A_CYCLE, (read + vectors) / _A_CYCLE, _LATENCY)
    cycles += _SPILLED * max(0, sums - _SUMS_IN_REGISTERS)
    cycles += _RELOADED * min(vectors, max(0, sums + vectors - _SUMS_IN_REGISTERS))
    if held:
        taps = layer.kernel_height * layer.kernel_width
        tiles = v["th"] * v["tw"] // pixels
        near = v["bc"] * taps * v["tm"] * 4 <= _NEAR_BYTES
        cycles += _HELD * sums / (v["bc"] * taps)
        cycles += _FROM_AFAR * vectors / (tiles if near else 1)
    if layer.kernel_height * layer.kernel_width > 1 and not v.get("ut"):
        cycles *= _ROLLED
    rows = shape.output_height + v["rho_y"]
    columns = shape.output_width + v["rho_x"]
    wasted = rows * columns / (shape.output_height * shape.output_width)
    return cycles * wasted / (sums * v["v"])
