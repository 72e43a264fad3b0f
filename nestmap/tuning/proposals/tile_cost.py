"""What tiles of a GPU kernel are likely to cost, to choose which of many draws are worth a build.

A model of one multiprocessor: work-items issue multiply-adds and loads of local memory, copy the
next chunk there, wait for it, and write their results; groups share the multiprocessor as far as
registers and local memory go, and the last wave of groups may be thin. Its constants are a fit to
9,952 candidates of the nine VGG-16 layers in three variants on an H200: the median rank
correlation with measured times, by layer and variant, is 0.67, and of the tenth that it likes best
the best is at 0.99 of the best of all (lowest 0.94). It ranks tiles of one layer and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from mapper.device_profile import DeviceProfile
from mapper.rewrites.shape import Shape

_WARP = 32
_SCHEDULERS = 4
_REGISTERS = 65_536
_MOST_REGISTERS = 255
_RESIDENT = 2_048
_LOCAL_BYTES = 227 * 1024
#: Registers for addresses and counters; bytes of local memory that a group costs anyway.
_SPARE_REGISTERS, _SPARE_BYTES = 24, 1_024
#: Cycles: of a multiprocessor for a word of a vector load of local memory; to wait for a copy, and
#: its share if the copy starts early; per accumulator to write a result; per element of a copy.
_WORD, _WAIT, _EARLY, _RESULT = 1.9, 235.0, 0.4, 34.0
_COPY, _FLAT_COPY, _COPIED_VECTOR = 5, 14, 8
#: How much of a thin last wave counts as a whole one.
_LAST_WAVE = 0.3
#: What of a wait the other groups of a multiprocessor do not hide.
_EXPOSED = 0.8


@dataclass(frozen=True, slots=True)
class _Tile:
    """What one work-item does for a channel, and one group for a chunk of channels."""

    multiply_adds: int
    words: float
    loads: float
    copy: float
    registers: float
    work_items: int
    groups: int
    local_bytes: int


def tile_cost(shape: Shape, profile: DeviceProfile, v: Mapping[str, int]) -> float:
    """Cycles of the device for a layer with these tuning parameters; only their order counts."""
    tile = _tile(shape, v)
    processors = max(1, profile.compute_units)
    warps = ceil(tile.work_items / _WARP)
    registers = min(_MOST_REGISTERS, max(_WARP, 8 * ceil(tile.registers / 8)))
    together = min(
        _RESIDENT // (warps * _WARP),
        _REGISTERS // int(registers * warps * _WARP),
        _LOCAL_BYTES // tile.local_bytes,
    )
    together = min(max(1, together), ceil(tile.groups / processors))
    per_scheduler = max(1.0, warps * together / _SCHEDULERS)
    channel = max(tile.multiply_adds + tile.loads + 6, _WORD * tile.words)
    chunk = channel * v["bc"] / v.get("ks", 1) + tile.copy
    wait = _WAIT * (_EARLY if v.get("pf") else 1.0)
    per_chunk = max(chunk * per_scheduler, chunk + wait) + _EXPOSED * wait / together
    chunks = dict(shape.sizes)["C"] / v.get("sp", 1) / v["bc"]
    waves = tile.groups / (processors * together)
    waves = max(waves, ceil(waves) * _LAST_WAVE + waves * (1 - _LAST_WAVE))
    result = _RESULT * v["tr"] * v["tp"] * v["tm"]
    return max(1.0, waves) * (chunks * per_chunk + result * per_scheduler)


def _tile(shape: Shape, v: Mapping[str, int]) -> _Tile:
    layer = shape.computed
    taps = layer.kernel_height * layer.kernel_width
    sums = v["tr"] * v["tp"] * v["tm"]
    around, at_once = v.get("wide", 0) + v.get("front", 0), v.get("iv", 1)
    pixels = _window(v["tr"], layer.stride_y, layer.window_height) * (
        _window(v["tp"], layer.stride_x, layer.window_width) + around
    )
    # A pixel serves all filters; where each has a channel of its own, each has its own pixel.
    pixels *= v["tm"] if shape.channelwise else 1
    weights = taps * v["tm"]
    slices = v.get("ks", 1)
    items = (v["bm"] // v["tm"]) * (v["th"] // v["tr"]) * (v["tw"] // v["tp"]) * slices
    image = _window(v["th"], layer.stride_y, layer.window_height) * (
        _window(v["tw"], layer.stride_x, layer.window_width) + around
    )
    image *= v["bm"] if shape.channelwise else 1
    flat, pieces = v.get("flat_copy", 0), image // at_once
    copied = ceil(v["bc"] * pieces / items) if flat else v["bc"] * ceil(pieces / items)
    vectors = ceil(v["bc"] * taps * v["bm"] / v["v"] / items)
    held = (at_once * copied + v["v"] * vectors) if v.get("pf") else 0
    buffers = 2 if v.get("pf") == 2 else 1
    local = buffers * v["bc"] * (image + taps * v["bm"]) + (sums * items if slices > 1 else 0)
    sizes = dict(shape.sizes)
    filters = sizes["M"] // v["bm"]
    tiles = ceil(shape.output_height / v["th"]) * ceil(shape.output_width / v["tw"])
    return _Tile(
        multiply_adds=sums * taps,
        words=pixels + weights,
        loads=pixels / v.get("pv", 1) + weights / v["v"],
        copy=copied * (_FLAT_COPY if flat else _COPY) + vectors * _COPIED_VECTOR,
        registers=sums + pixels + weights + held + _SPARE_REGISTERS,
        work_items=items,
        groups=max(1, tiles * filters * v.get("sp", 1) * sizes.get("G", 1) * layer.batch),
        local_bytes=4 * local + _SPARE_BYTES,
    )


def _window(outputs: int, stride: int, window: int) -> int:
    """Inputs along one dimension that these outputs read."""
    return (outputs - 1) * stride + window
