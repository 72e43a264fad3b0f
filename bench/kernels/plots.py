"""Throughput and memory of contestants layer by layer, from a file of results.

"Auto-Generation of Specialized Direct Convolutions for Mobile GPUs" (GPGPU'20), Figure 5: output
a second of generated kernels, of a direct and of a GEMM-based convolution, and what memory each
takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bench.kernels.bench_file import GPU_SCHEMA
from bench.kernels.cpu_file import CPU_SCHEMA
from bench.kernels.libraries import BY_KEY
from bench.svg import Axis, Bars, Panel, bar_charts
from mapper.errors import InputError, Problem
from mapper.layer_spec import LayerSpec

#: All that a direct convolution has to have in memory.
_OPERANDS = "image, weights, result"
#: Whose figures say what they take beside these: scratch buffers and weights in another order.
_TELLING = ("nestmap", "cuDNN")
_MIB = 2**20


def throughput_plot(value: Mapping[str, Any]) -> str:
    """An SVG document of a value of ``nestmap/bench-gpu/1`` or ``nestmap/bench-cpu/1``.

    A contestant that failed on a layer has no bar there, and none for memory if it does not say
    what it takes. InputError for another document, or one without rows.
    """
    schema = value.get("schema")
    if schema not in (GPU_SCHEMA, CPU_SCHEMA):
        allowed = f"{GPU_SCHEMA}, {CPU_SCHEMA}"
        raise InputError(Problem("schema", "not a comparison's results", str(schema), allowed))
    rows: Sequence[Mapping[str, Any]] = value["rows"]
    if not rows:
        raise InputError(Problem("rows", "the comparison has no layers"))
    figures = [_by_contestant(row, gpu=schema == GPU_SCHEMA) for row in rows]
    layers = [LayerSpec.from_json(row["layer"]) for row in rows]
    names = list(dict.fromkeys(name for found in figures for name in found))
    rates = [
        Bars(_title(name), [_rate(x, f.get(name)) for x, f in zip(layers, figures, strict=True)])
        for name in names
    ]
    sizes = [
        Bars(_title(name), [_memory(x, f.get(name)) for x, f in zip(layers, figures, strict=True)])
        for name in names
    ]
    operands = [_operand_bytes(layer) / _MIB for layer in layers]
    smallest = min((v for one in rates for v in one.values if v is not None), default=1.0)
    return bar_charts(
        f"Output and memory on {value['device']['device.name']}",
        [layer.name for layer in layers],
        [
            Panel(
                Axis("output, GB/s", log=True, low=10.0 ** math.floor(math.log10(smallest))),
                [*rates, Bars(_OPERANDS, [None] * len(layers))],
            ),
            Panel(Axis("memory, MiB", low=0.0), [*sizes, Bars(_OPERANDS, operands)]),
        ],
    )


def _by_contestant(row: Mapping[str, Any], *, gpu: bool) -> dict[str, Mapping[str, Any]]:
    """The figures of a layer that did not fail, ours first."""
    found = [row["best"], row["cudnn"]] if gpu else row["contestants"]
    return {
        figure["contestant"]: figure
        for figure in found
        if figure is not None and not figure["failure"] and figure["time_ms"] is not None
    }


def _title(contestant: str) -> str:
    return BY_KEY[contestant].title if contestant in BY_KEY else contestant


def _rate(layer: LayerSpec, figure: Mapping[str, Any] | None) -> float | None:
    """Gigabytes of output a second."""
    if figure is None:
        return None
    return math.prod(layer.output_shape) * layer.dtype.bytes / figure["time_ms"] / 1e6


def _memory(layer: LayerSpec, figure: Mapping[str, Any] | None) -> float | None:
    """MiB of operands and of what is beside them; None for a library that does not say."""
    if figure is None:
        return None
    if figure["contestant"] == "im2col":
        beside = _unfolded_bytes(layer)
    elif figure["contestant"] in _TELLING:
        beside = figure["extra_bytes"] + figure["prepared_bytes"]
    else:
        return None
    return (_operand_bytes(layer) + beside) / _MIB


def _operand_bytes(layer: LayerSpec) -> int:
    shapes = (layer.image_shape, layer.weights_shape, layer.output_shape)
    return sum(math.prod(shape) for shape in shapes) * layer.dtype.bytes


def _unfolded_bytes(layer: LayerSpec) -> int:
    """What ``cpu_server.Im2Col`` has: the matrix of an image's windows, and the padded images."""
    windows = layer.output_height * layer.output_width
    length = layer.channels * layer.kernel_height * layer.kernel_width
    height = layer.height + layer.pad_top + layer.pad_bottom
    width = layer.width + layer.pad_left + layer.pad_right
    padded = layer.batch * layer.channels * height * width
    is_padded = (height, width) != (layer.height, layer.width)
    return (windows * length + padded * is_padded) * layer.dtype.bytes
