"""What a program gives for its inputs within seconds: all outputs, or exact values of some.

All outputs come from :class:`mapper.ast_model.evaluator.Evaluator` where that takes at most 2**30
operations on elements, 5 * 2**34 multiplications of matrices and no array of more than 2**27
elements that is not there yet. Otherwise :data:`SAMPLED` outputs, drawn by a seed, are computed
alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, product

import numpy as np
from numpy.typing import NDArray

from mapper.ast_model.evaluator import Evaluator
from mapper.ast_model.folds import names_in
from mapper.ast_model.grids import Array
from mapper.ast_model.interpreter import all_values, check_obligations, checked_inputs
from mapper.ast_model.nodes import Program
from mapper.ast_model.some_outputs import Elements, SomeOutputs, elements_of
from mapper.ast_model.type_check import check_program
from mapper.ast_model.types import VectorType, dimensions
from mapper.errors import LimitError

#: Outputs that are computed where it cannot be all.
SAMPLED = 4096
#: Corners among them, at most.
_CORNERS = 512


@dataclass(frozen=True, slots=True)
class Outputs:
    """The result of a program's last kernel in 64-bit floats.

    ``known`` is None if all of it is; else so many elements are, and the others are NaN.
    """

    values: NDArray[np.float64]
    known: int | None = None


def outputs(
    program: Program,
    values: Mapping[str, int],
    inputs: Mapping[str, Array],
    seed: int,
    sampled: int = SAMPLED,
) -> Outputs:
    """All outputs or some, see above; errors as :func:`mapper.ast_model.interpreter.interpret`.

    LimitError where even single outputs take too long.
    """
    types = check_program(program)
    numbers = all_values(program, values)
    check_obligations(types.obligations, numbers)
    single = all(np.asarray(array).dtype.itemsize <= 4 for array in inputs.values())
    arrays = checked_inputs(program, numbers, inputs, np.dtype(np.float32 if single else "f8"))
    whole, some = Evaluator(program, numbers), SomeOutputs(program, numbers)
    known: dict[str, Elements] = {name: elements_of(array) for name, array in arrays.items()}
    slow: set[str] = set()
    for kernel in program.kernels:
        result = None
        if not slow & names_in(kernel.body):
            with suppress(LimitError):
                result = arrays[kernel.name] = whole.kernel(kernel.body, arrays)
        if result is None:
            slow.add(kernel.name)
            known[kernel.name] = some.kernel(kernel.body, known)
        else:
            known[kernel.name] = elements_of(result)
    last = program.kernels[-1].name
    if last in arrays:
        return Outputs(np.asarray(arrays[last], dtype=np.float64))
    lengths, element = dimensions(types.kernel_types[last])
    if isinstance(element, VectorType):
        lengths = (*lengths, element.width)
    shape = tuple(length.evaluate(numbers) for length in lengths)
    indices = drawn(shape, sampled, seed)
    result = np.full(shape, np.nan)
    result[indices] = some.look_up(known[last], indices)
    count = len(indices[0])
    return Outputs(result, None if count == result.size else count)


def drawn(shape: tuple[int, ...], count: int, seed: int) -> tuple[NDArray[np.intp], ...]:
    """Indices of at least ``count`` different elements, or of all: corners, borders, the rest."""
    size = math.prod(shape)
    if size <= count:
        return tuple(np.unravel_index(np.arange(size), shape))
    source = np.random.default_rng(seed)
    ends: list[tuple[int, ...]] = [(0,) if n == 1 else (0, n - 1) for n in shape]
    found = np.array(
        [np.ravel_multi_index(c, shape) for c in islice(product(*ends), _CORNERS)], dtype=np.intp
    )
    # A quarter lies on borders: along one dimension at either end, anywhere along the others.
    borders = [source.integers(0, n, count // 4) for n in shape]
    for position in range(count // 4):
        dimension = int(source.integers(0, len(shape)))
        end = ends[dimension]
        borders[dimension][position] = end[int(source.integers(0, len(end)))]
    found = np.union1d(found, np.ravel_multi_index(tuple(borders), shape))
    while len(found) < count:
        found = np.union1d(found, source.integers(0, size, count - len(found)))
    return tuple(np.unravel_index(found, shape))
