"""A convolution written by hand for CPUs: what can be reached without a generator.

3x3, stride 1, border 1 (the layer's padding, or in the image already), one image, 32-bit floats.
The image is packed in blocks of 16 channels with its border before anything is timed (planes where
it has fewer channels), weights as
[block of filters][channel][tap][vector]; the result is in blocks of 16 too. A work-group is one
work-item: it computes a band of rows for ``vectors`` x 16 filters, in tiles of ``rows`` x
``pixels`` whose sums stay in registers. The points are those that a search by hand found best on
two cores with AVX-512.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.kernels.operands import Array, Operands
from bench.kernels.turns import Turn, run_s, turn_of
from mapper.errors import NestmapError
from mapper.layer_spec import LayerSpec
from worker.measuring.loaded_plan import Session

BY_HAND = "by-hand"
_BLOCK = 16
_TAPS = tuple((ky, kx) for ky in range(3) for kx in range(3))
_PLAIN = {
    "batch": 1, "groups": 1, "kernel_height": 3, "kernel_width": 3, "stride_y": 1, "stride_x": 1,
    "dilation_y": 1, "dilation_x": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Point:
    """Vectors of 16 filters, pixels and rows of a tile, rows of a band; ``chunked``: a band takes
    16 channels after the other, its sums waiting in the result meanwhile."""

    vectors: int
    pixels: int
    rows: int
    band: int
    chunked: bool


#: By channels, height (and width) of the result, filters: VGG-16's nine layers.
POINTS = {
    (3, 224, 64): Point(1, 7, 2, 4, chunked=False),
    (64, 224, 64): Point(4, 4, 1, 4, chunked=False),
    (64, 112, 128): Point(2, 8, 1, 2, chunked=False),
    (128, 112, 128): Point(2, 7, 1, 4, chunked=True),
    (128, 56, 256): Point(4, 4, 1, 14, chunked=False),
    (256, 56, 256): Point(1, 7, 2, 28, chunked=True),
    (256, 28, 512): Point(2, 7, 1, 1, chunked=False),
    (512, 28, 512): Point(2, 7, 1, 14, chunked=True),
    (512, 14, 512): Point(1, 7, 2, 14, chunked=True),
}


def point_of(layer: LayerSpec) -> Point:
    """The point that is known for a layer. NestmapError if there is none."""
    height, width = layer.output_height, layer.output_width
    point = POINTS.get((layer.channels, height, layer.filters))
    other = [name for name, value in _PLAIN.items() if getattr(layer, name) != value]
    pads = {layer.pad_top, layer.pad_left, layer.pad_bottom, layer.pad_right}
    if point is None or other or pads not in ({0}, {1}) or width != height:
        raise NestmapError("nobody wrote one: there are those of VGG-16's nine layers")
    return point


class HandWritten:
    """The kernel for one layer with its operands, packed; a context manager.

    NestmapError if nobody wrote one for the layer, or the device does not build it.
    """

    def __init__(
        self, session: Session, layer: LayerSpec, operands: Operands, point: Point | None = None
    ) -> None:
        import pyopencl as cl

        self.point = point = point or point_of(layer)
        self._layer, self._queue = layer, session.queue
        flags = cl.mem_flags
        copied = flags.READ_ONLY | flags.COPY_HOST_PTR
        image = _packed_image(operands.image[0], layer.pad_top)
        weights = _packed_weights(operands.weights, point.vectors)
        result = layer.filters * layer.output_height * layer.output_width * 4
        self._buffers: list[Any] = [
            cl.Buffer(session.context, copied, hostbuf=image),
            cl.Buffer(session.context, copied, hostbuf=weights),
            cl.Buffer(session.context, flags.READ_WRITE, result),
        ]
        try:
            program: Any = cl.Program(session.context, source(layer, point)).build()
        except cl.Error as error:
            raise NestmapError(f"the device does not build it: {error}"[:300]) from error
        self._kernel: Any = program.convolution
        self._kernel.set_args(*self._buffers)
        self._groups = (
            layer.output_height // point.band,
            layer.filters // (_BLOCK * point.vectors),
        )

    def run(self) -> float:
        """Compute the layer once: seconds from the call to the result."""
        return run_s(self._queue, self._kernel, self._groups)

    def turn(self, seconds: float, least: int) -> Turn:
        """As a library's turn."""
        return turn_of(self.run, seconds, least)

    def result(self) -> Array:
        """What the last run wrote, as libraries give it: [1][M][H][W]."""
        import pyopencl as cl

        layer = self._layer
        blocks = layer.filters // _BLOCK
        height, width = layer.output_height, layer.output_width
        found = np.empty((1, blocks, height, width, _BLOCK), np.float32)
        cl.enqueue_copy(self._queue, found, self._buffers[2])
        shape = (1, layer.filters, height, width)
        return found.transpose(0, 1, 4, 2, 3).reshape(shape)

    def __enter__(self) -> HandWritten:
        return self

    def __exit__(self, *_: object) -> None:
        for buffer in self._buffers:
            buffer.release()


def _packed_image(image: Array, border: int) -> Array:
    """[C][H][W] with its border, which may be there already, in blocks of 16 channels where there
    are as many."""
    bordered = np.pad(image, ((0, 0), (border, border), (border, border)))
    channels, height, width = bordered.shape
    if channels >= _BLOCK:
        blocks = (channels // _BLOCK, _BLOCK, height, width)
        bordered = bordered.reshape(blocks).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(bordered, np.float32)


def _packed_weights(weights: Array, vectors: int) -> Array:
    """[M][C][3][3] as [block][C][tap][vector][16]."""
    filters, channels = weights.shape[:2]
    blocks = (filters // (_BLOCK * vectors), vectors, _BLOCK, channels, len(_TAPS))
    packed = weights.reshape(blocks).transpose(0, 3, 4, 1, 2)
    return np.ascontiguousarray(packed, np.float32)


def source(layer: LayerSpec, point: Point) -> str:
    """The kernel's OpenCL."""
    height, width = layer.output_height, layer.output_width
    planes = layer.channels < _BLOCK
    chunk = layer.channels if planes else _BLOCK
    tile = [
        (vector, row, pixel)
        for vector in range(point.vectors)
        for row in range(point.rows)
        for pixel in range(point.pixels)
    ]

    def each(statement: str) -> str:
        return "\n    ".join(statement.format(v=v, r=r, p=p) for v, r, p in tile)

    def at(row: int, column: int) -> str:
        if planes:
            return f"(c * {height + 2} + y + {row}) * {width + 2} + x + {column}"
        pixel = f"(chunk * {height + 2} + y + {row}) * {width + 2} + x + {column}"
        return f"({pixel}) * {_BLOCK} + in_chunk"

    lines: list[str] = []
    for tap, (ky, kx) in enumerate(_TAPS):
        place = f"((block * {layer.channels} + c) * {len(_TAPS)} + {tap}) * {point.vectors}"
        loads = [f"const float16 w{v} = weights[{place} + {v}];" for v in range(point.vectors)]
        lines.append("{ " + " ".join(loads))
        for row in range(point.rows):
            for pixel in range(point.pixels):
                # A product and a sum, not fma(): PyPI's PoCL does not inline that of vectors.
                adds = [f"s{v}_{row}_{pixel} += w{v} * i;" for v in range(point.vectors)]
                value = f"const float i = image[{at(row + ky, pixel + kx)}];"
                lines.append(f"  {{ {value} {' '.join(adds)} }}")
        lines.append("}")
    step = "\n      ".join(lines)
    result = (
        f"result[((block * {point.vectors} + {{v}}) * {height} + y + {{r}}) * {width} + x + {{p}}]"
    )
    declare, clear = each("float16 s{v}_{r}_{p};"), each("s{v}_{r}_{p} = (float16)(0.0f);")
    load, store = each(f"s{{v}}_{{r}}_{{p}} = {result};"), each(f"{result} = s{{v}}_{{r}}_{{p}};")
    chunks = f"for (size_t chunk = 0; chunk < {layer.channels // chunk}; ++chunk)"
    rows = f"for (size_t y = first; y < first + {point.band}; y += {point.rows})"
    columns = f"for (size_t x = 0; x < {width}; x += {point.pixels})"
    outside, start, inside = f"{rows}\n  {columns}", clear, chunks
    if point.chunked:
        outside = f"{chunks}\n  {outside}"
        start = f"if (chunk == 0) {{ {clear} }} else {{ {load} }}"
        inside = ""
    return f"""
#pragma OPENCL FP_CONTRACT ON
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void convolution(__global const float *restrict image, __global const float16 *restrict weights,
                 __global float16 *restrict result)
{{
  const size_t block = get_group_id(1), first = get_group_id(0) * {point.band};
  {outside} {{
    {declare}
    {start}
    {inside}
    for (size_t in_chunk = 0; in_chunk < {chunk}; ++in_chunk) {{
      const size_t c = chunk * {chunk} + in_chunk;
      {step}
    }}
    {store}
  }}
}}
"""
