"""What a layer or program must compute, from code that shares nothing with the kernels.

A layer's reference is a convolution in float64 straight from its definition: windows of the
padded image times the filters. A program that belongs to no layer is held against its one
meaning, the NumPy interpreter's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.interpreter import interpret
from mapper.ast_model.loop_nest import Loop, LoopKernel, Statement
from mapper.errors import InputError, Problem
from mapper.layer_spec import LayerSpec
from mapper.pipeline import Subject
from mapper.programs.common import IMAGE, WEIGHTS
from worker.measuring import Tolerance

#: Bytes that a chunk of copied windows may take. Small enough for a board's memory.
_CHUNK_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Workload:
    """Inputs by name (float32), the right output (float64) and how near to it is right."""

    inputs: Mapping[str, NDArray[np.float32]]
    expected: NDArray[np.float64]
    tolerance: Tolerance


def make_workload(subject: Subject, seed: int, parameters: Mapping[str, int]) -> Workload:
    """Random inputs of a subject and its reference output.

    ``parameters`` are any admissible tuning values: the meaning of a program does not depend
    on them, but the interpreter needs some. A layer needs none.
    """
    inputs = make_inputs(subject, seed)
    if subject.layer is not None:
        expected = convolve(subject.layer, inputs[IMAGE], inputs[WEIGHTS])
        length = subject.layer.accumulation_length
    else:
        program = subject.require_program()
        expected = np.asarray(interpret(program, dict(parameters), inputs), dtype=np.float64)
        length = accumulation_length(subject, parameters)
    return Workload(inputs, expected, Tolerance(length))


def make_inputs(subject: Subject, seed: int) -> dict[str, NDArray[np.float32]]:
    """Standard normal numbers for every input of the program, the same for the same seed."""
    generator = np.random.default_rng(seed)
    return {
        name: generator.standard_normal(shape, dtype=np.float32)
        for name, shape in input_shapes(subject).items()
    }


def input_shapes(subject: Subject) -> dict[str, tuple[int, ...]]:
    """The sizes of every input, outermost dimension first."""
    shapes: dict[str, tuple[int, ...]] = {}
    for buffer in elaborate(subject.require_program()).inputs:
        sizes = [length.constant for length in buffer.dimensions]
        if any(size is None for size in sizes):
            raise InputError(
                Problem(
                    f"inputs/{buffer.name}",
                    "the size depends on a tuning parameter, so there is no one input to measure",
                    " x ".join(str(length) for length in buffer.dimensions),
                    "sizes that are numbers",
                )
            )
        shapes[buffer.name] = tuple(size for size in sizes if size is not None)
    return shapes


def convolve(layer: LayerSpec, image: NDArray[Any], weights: NDArray[Any]) -> NDArray[np.float64]:
    """[output_height][output_width][filters] in float64, a few output rows at a time."""
    padded = np.pad(
        image.astype(np.float64),
        ((layer.pad_top, layer.pad_bottom), (layer.pad_left, layer.pad_right), (0, 0)),
    )
    # [filters][kh][kw][C] -> [C * kh * kw][filters], in the order that windows come in
    matrix = weights.astype(np.float64).transpose(3, 1, 2, 0).reshape(-1, layer.filters)
    windows = sliding_window_view(padded, (layer.kernel_height, layer.kernel_width), axis=(0, 1))  # pyright: ignore[reportCallIssue, reportArgumentType]
    windows = windows[:: layer.stride, :: layer.stride]  # [OH][OW][C][kh][kw]
    rows, columns = layer.output_height, layer.output_width
    result = np.empty((rows, columns, layer.filters))
    row_bytes = 8 * columns * layer.accumulation_length
    step = max(1, _CHUNK_BYTES // row_bytes)
    for start in range(0, rows, step):
        chunk = windows[start : start + step]
        flat = chunk.reshape(-1, layer.accumulation_length)
        result[start : start + step] = (flat @ matrix).reshape(len(chunk), columns, -1)
    return result


def accumulation_length(subject: Subject, parameters: Mapping[str, int]) -> int:
    """Terms in the longest sum behind one output element: reductions multiply over kernels."""
    loops = elaborate(subject.require_program(), dict(parameters))
    return max(1, prod(_longest_reduction(kernel) for kernel in loops.kernels))


def _longest_reduction(kernel: LoopKernel) -> int:
    return max(_reductions(kernel.statements, 1))


def _reductions(statements: tuple[Statement, ...], terms: int) -> Iterator[int]:
    yield terms
    for statement in statements:
        if isinstance(statement, Loop):
            factor = (statement.trip.constant or 1) if statement.map_id is None else 1
            yield from _reductions(statement.body, terms * factor)
