"""What a layer or program must compute, from code that shares nothing with the kernels.

A layer's reference is a convolution in float64 straight from its definition: windows of the
padded image times the filters of their group, plus bias, activated; where that would take too
long, some outputs are computed so, and the others are not known. A program that belongs to no
layer is held against its one meaning, the interpreter's, which is computed by whole arrays; where
that would take too long, some of its outputs are known (see mapper.ast_model.outputs).
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
from mapper.ast_model.element_types import rounds, uses_half
from mapper.ast_model.interpreter import interpret
from mapper.ast_model.loop_nest import (
    Guarded,
    LaneSum,
    Loop,
    LoopKernel,
    LoopProgram,
    Operate,
    Statement,
    Store,
    Value,
    dtype_of,
    walk,
)
from mapper.ast_model.nodes import Program
from mapper.ast_model.outputs import SAMPLED, drawn, outputs
from mapper.ast_model.type_check import check_program
from mapper.ast_model.types import element_dtype
from mapper.elements import Element
from mapper.errors import InputError, LimitError, Problem
from mapper.layer_spec import Activation, LayerSpec, Layout, block_of
from mapper.pipeline import Subject
from mapper.programs.common import BIAS, IMAGE, WEIGHTS
from mapper.solver.limits import SolveLimits, Watch
from worker.measuring import Tolerance

#: Bytes that a chunk of copied windows may take. Small enough for a board's memory.
_CHUNK_BYTES = 64 * 1024 * 1024
#: Multiplications of a layer whose outputs are all computed: some seconds on one core.
MOST_MULTIPLICATIONS = 2**35
#: The same where it is some of them; at least :data:`_LEAST_SAMPLED` are computed.
_MOST_SAMPLED_MULTIPLICATIONS = 2**30
_LEAST_SAMPLED = 16
#: Seconds that the interpreter may take for a program.
INTERPRETED_S = 60.0
#: Of integers that inputs are drawn from.
_LARGEST = 999
#: Of the tolerance where sums are of 16-bit floats.
_HALF_FACTOR = 2.0


@dataclass(frozen=True, slots=True)
class Workload:
    """Inputs by name (as stored), the right output (float64) and how near to it is right.

    Elements of the output that are not known are NaN.
    """

    inputs: Mapping[str, NDArray[Any]]
    expected: NDArray[np.float64]
    tolerance: Tolerance


def make_workload(subject: Subject, seed: int, parameters: Mapping[str, int]) -> Workload:
    """Random inputs of a subject and its reference output.

    ``parameters`` are any admissible tuning values: the meaning of a program does not depend
    on them, but evaluating it needs some. A layer needs none. InputError where outputs are no
    finite numbers, LimitError where nothing can compute them.
    """
    inputs = make_inputs(subject, seed)
    if subject.layer is not None:
        expected = expected_of_layer(subject.layer, inputs, seed)
        length = subject.layer.accumulation_length
    else:
        program = subject.require_program()
        expected, known = _outputs(program, parameters, inputs, seed)
        if np.isfinite(expected).sum() != known:
            raise InputError(
                Problem(
                    "expected",
                    "holds NaN or infinity",
                    remedy="functions that are finite for standard normal numbers",
                )
            )
        length = accumulation_length(subject, parameters)
    return Workload(inputs, expected, tolerance_of(subject, parameters, length))


def tolerance_of(subject: Subject, parameters: Mapping[str, int], length: int) -> Tolerance:
    """How near to the reference is right, where the longest sum has so many terms.

    Integers have to be the same. Sums of 16-bit floats err by what their own steps round: of a
    million sums of n products of standard normal numbers the one that is off the most is by about
    2**-10 * sqrt(n), and twice that is allowed.
    """
    program = subject.require_program()
    types = check_program(program)
    output = element_dtype(types.kernel_types[program.kernels[-1].name])
    if output.is_integer:
        return Tolerance(length, dtype=output)
    if not uses_half(program):
        return Tolerance(length)
    loops = elaborate(program, dict(parameters))
    roundings = half_roundings(loops)
    if any(_sums_halves(kernel.statements, inside=False) for kernel in loops.kernels):
        return Tolerance(length, _HALF_FACTOR, roundings, Element.FLOAT16)
    return Tolerance(length, half_roundings=roundings)


def half_roundings(loops: LoopProgram) -> int:
    """In how many places a program rounds to 16-bit floats; a value passes each once at most,
    but for those in reduces."""
    return sum(
        _roundings(statement.value)
        for kernel in loops.kernels
        for statement, _ in walk(kernel.statements)
        if isinstance(statement, Store)
    )


def _sums_halves(statements: tuple[Statement, ...], *, inside: bool) -> bool:
    """Whether a reduce rounds to 16-bit floats in its steps."""
    return any(
        _sums_halves(statement.body, inside=inside or statement.map_id is None)
        if isinstance(statement, Loop)
        else inside and isinstance(statement, Store) and _roundings(statement.value) > 0
        for statement in statements
    )


def _roundings(value: Value) -> int:
    match value:
        case Operate():
            return rounds(value.op, value.dtype) + sum(map(_roundings, value.operands))
        case Guarded():
            return _roundings(value.value)
        case LaneSum():
            return _roundings(value.value) + (dtype_of(value) is Element.FLOAT16)
        case _:
            return 0


def _outputs(
    program: Program, parameters: Mapping[str, int], inputs: Mapping[str, NDArray[Any]], seed: int
) -> tuple[NDArray[np.float64], int]:
    """A program's output, and how many of its elements are known."""
    try:
        found = outputs(program, dict(parameters), inputs, seed)
    except LimitError:  # slowly, then, if at all
        watch = Watch(SolveLimits(time_s=INTERPRETED_S, memory_bytes=None))
        found = interpret(program, dict(parameters), inputs, tick=watch.tick)
        values = np.asarray(found, dtype=np.float64)
        return values, values.size
    return found.values, found.values.size if found.known is None else found.known


def expected_of_layer(
    layer: LayerSpec, inputs: Mapping[str, NDArray[Any]], seed: int
) -> NDArray[np.float64]:
    """All outputs of a layer; some, drawn by the seed, where all would take too long."""
    if layer.macs <= MOST_MULTIPLICATIONS:
        return convolve(layer, **inputs)
    most = _MOST_SAMPLED_MULTIPLICATIONS // layer.accumulation_length
    return convolve_some(layer, min(SAMPLED, max(_LEAST_SAMPLED, most)), seed, **inputs)


def make_inputs(subject: Subject, seed: int) -> dict[str, NDArray[Any]]:
    """Standard normal numbers for every input of the program, the same for the same seed.

    In the type that the program stores them in: 16-bit floats are rounded here, so that every
    judge starts with the same numbers. Integers are any between -999 and 999 that the type has.
    """
    generator = np.random.default_rng(seed)
    types = {i.name: element_dtype(i.type) for i in subject.require_program().inputs}
    return {
        name: _drawn_input(generator, shape, types[name])
        for name, shape in input_shapes(subject).items()
    }


def _drawn_input(
    generator: np.random.Generator, shape: tuple[int, ...], element: Element
) -> NDArray[Any]:
    if not element.is_integer:
        return generator.standard_normal(shape, dtype=np.float32).astype(element.value)
    low, high = max(element.range[0], -_LARGEST), min(element.range[1], _LARGEST)
    return generator.integers(low, high + 1, shape).astype(element.value)


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


def convolve(
    layer: LayerSpec,
    image: NDArray[Any],
    weights: NDArray[Any],
    bias: NDArray[Any] | None = None,
) -> NDArray[np.float64]:
    """A layer's result in float64, in its layout; a few output rows at a time.

    Shapes as LayerSpec says; InputError for others, and for a bias that is missing or too much.
    """
    _check_shapes(layer, image, weights, bias)
    images, weights = channels_last_image(layer, image), channels_last_weights(layer, weights)
    result = np.stack([_convolve_one(layer, one, weights) for one in images])
    if bias is not None:
        result += bias.astype(np.float64)
    return np.ascontiguousarray(from_channels_last(layer, activated(layer, result)))


def convolve_some(
    layer: LayerSpec,
    count: int,
    seed: int,
    image: NDArray[Any],
    weights: NDArray[Any],
    bias: NDArray[Any] | None = None,
) -> NDArray[np.float64]:
    """As :func:`convolve` for this many outputs and some corners; all others are NaN."""
    _check_shapes(layer, image, weights, bias)
    images, weights = channels_last_image(layer, image), channels_last_weights(layer, weights)
    padded = np.pad(
        images,
        ((0, 0), (layer.pad_top, layer.pad_bottom), (layer.pad_left, layer.pad_right), (0, 0)),
    )
    shape = (layer.batch, layer.output_height, layer.output_width, layer.filters)
    indices = drawn(shape, count, seed)
    totals = np.empty(len(indices[0]))
    depth = layer.channels // layer.groups
    for place, (one, row, column, chosen) in enumerate(zip(*indices, strict=True)):
        top, left = row * layer.stride_y, column * layer.stride_x
        first = chosen // (layer.filters // layer.groups) * depth
        window = padded[
            one,
            top : top + layer.window_height : layer.dilation_y,
            left : left + layer.window_width : layer.dilation_x,
            first : first + depth,
        ]
        totals[place] = np.vdot(window.astype(np.float64), weights[chosen].astype(np.float64))
    if bias is not None:
        totals += bias.astype(np.float64)[indices[3]]
    result = np.full(shape, np.nan)
    result[indices] = activated(layer, totals)
    return np.ascontiguousarray(from_channels_last(layer, result))


def channels_last_image(layer: LayerSpec, image: NDArray[Any]) -> NDArray[Any]:
    """[batch][height][width][channels] of an image in the layer's layout."""
    match layer.layout:
        case Layout.NHWC:
            ordered = image
        case Layout.NCHW:
            ordered = image.transpose(0, 2, 3, 1)
        case Layout.NCHW16C:
            ordered = image.transpose(0, 2, 3, 1, 4)
    return ordered.reshape(layer.batch, layer.height, layer.width, layer.channels)


def channels_last_weights(layer: LayerSpec, weights: NDArray[Any]) -> NDArray[Any]:
    """[filters][kernel rows][kernel columns][channels / groups] of a layer's weights."""
    return weights if layer.layout is Layout.NHWC else weights.transpose(0, 2, 3, 1)


def from_channels_last(layer: LayerSpec, result: NDArray[Any]) -> NDArray[Any]:
    """A result [batch][rows][columns][filters] in the layer's layout."""
    match layer.layout:
        case Layout.NHWC:
            ordered = result
        case Layout.NCHW:
            ordered = result.transpose(0, 3, 1, 2)
        case Layout.NCHW16C:
            blocks = result.reshape(*result.shape[:3], -1, block_of(layer.filters))
            ordered = blocks.transpose(0, 3, 1, 2, 4)
    return ordered.reshape(layer.output_shape)


def activated(layer: LayerSpec, total: NDArray[Any]) -> NDArray[Any]:
    """The layer's activation of every element."""
    match layer.activation:
        case Activation.NONE:
            return total
        case Activation.RELU:
            return np.where(total > 0, total, 0.0)
        case Activation.RELU6:
            return np.clip(total, 0.0, 6.0)
        case Activation.LEAKY_RELU:
            return np.where(total > 0, total, layer.activation_slope * total)
        case Activation.SIGMOID:
            # Of |total|, so that nothing overflows.
            small = np.exp(-np.abs(total))
            return np.where(total > 0, 1.0, small) / (1.0 + small)


def _check_shapes(
    layer: LayerSpec,
    image: NDArray[Any],
    weights: NDArray[Any],
    bias: NDArray[Any] | None,
) -> None:
    wanted = {IMAGE: (image, layer.image_shape), WEIGHTS: (weights, layer.weights_shape)}
    if bias is not None:
        wanted[BIAS] = (bias, (layer.filters,))
    problems = [
        Problem(f"inputs/{name}", "the array has another shape", str(array.shape), str(shape))
        for name, (array, shape) in wanted.items()
        if array.shape != shape
    ]
    if (bias is not None) is not layer.bias:
        found = "none" if bias is None else "a bias"
        problems.append(Problem(f"inputs/{BIAS}", "the layer says otherwise", found))
    if problems:
        raise InputError(problems)


def _convolve_one(
    layer: LayerSpec, image: NDArray[Any], weights: NDArray[Any]
) -> NDArray[np.float64]:
    """[output_height][output_width][filters] of [H][W][C] and [filters][kh][kw][C / groups]."""
    padded = np.pad(
        image.astype(np.float64),
        ((layer.pad_top, layer.pad_bottom), (layer.pad_left, layer.pad_right), (0, 0)),
    )
    windows = sliding_window_view(padded, (layer.window_height, layer.window_width), axis=(0, 1))  # pyright: ignore[reportCallIssue, reportArgumentType]
    windows = windows[:: layer.stride_y, :: layer.stride_x]
    windows = windows[..., :: layer.dilation_y, :: layer.dilation_x]  # [OH][OW][C][kh][kw]
    rows, columns = layer.output_height, layer.output_width
    # [group][C * kh * kw][filter], in the order that windows come in
    matrices = weights.astype(np.float64).transpose(0, 3, 1, 2)
    matrices = matrices.reshape(layer.groups, -1, layer.accumulation_length).swapaxes(1, 2)
    result = np.empty((rows, columns, layer.filters))
    row_bytes = 8 * columns * layer.accumulation_length * layer.groups
    step = max(1, _CHUNK_BYTES // row_bytes)
    for start in range(0, rows, step):
        chunk = windows[start : start + step]
        flat = chunk.reshape(-1, layer.groups, layer.accumulation_length).swapaxes(0, 1)
        product = (flat @ matrices).swapaxes(0, 1)  # [pixel][group][filter]
        result[start : start + step] = product.reshape(len(chunk), columns, -1)
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
