"""Arrays whose dimensions may lie in several axes, so that a change of layout copies nothing.

A dimension of a :class:`Grid` is a run of neighbouring axes of its array, most significant first:
joining two dimensions is then a matter of counting, also where the array is a view whose axes
no stride joins (windows that overlap, transpositions, what was made longer by broadcasting).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from mapper.ast_model.nodes import OrderKind
from mapper.errors import LimitError, Problem

Array = NDArray[Any]

#: Elements that an array which is written may have (1 GiB of 64-bit floats), and its axes.
MAX_ELEMENTS = 2**27
MAX_AXES = 60


def bounded(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape itself; LimitError if no array of it may be written."""
    if math.prod(shape) > MAX_ELEMENTS or len(shape) > MAX_AXES:
        raise LimitError(
            Problem("", "an intermediate value is too large to evaluate",
                    f"{math.prod(shape)} elements on {len(shape)} axes",
                    f"{MAX_ELEMENTS} elements on {MAX_AXES} axes", "a smaller program")
        )  # fmt: skip
    return tuple(shape)


@dataclass(frozen=True, slots=True)
class Grid:
    """An array with ``digits[d]`` axes (at least one) for dimension d, outermost first."""

    array: Array
    digits: tuple[int, ...]

    @staticmethod
    def of(array: Array) -> Grid:
        """An array with one axis a dimension."""
        return Grid(array, (1,) * array.ndim)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.length(d) for d in range(len(self.digits)))

    def lengths(self, dimension: int) -> tuple[int, ...]:
        """The axes' lengths of a dimension."""
        first = sum(self.digits[:dimension])
        return self.array.shape[first : first + self.digits[dimension]]

    def length(self, dimension: int) -> int:
        return math.prod(self.lengths(dimension))

    def reshaped(self, dimension: int, *parts: Sequence[int]) -> Grid:
        """A dimension as others, each of which has axes of these lengths."""
        first = sum(self.digits[:dimension])
        axes = [length for part in parts for length in part]
        after = self.array.shape[first + self.digits[dimension] :]
        shape = (*self.array.shape[:first], *axes, *after)
        digits = (*self.digits[:dimension], *map(len, parts), *self.digits[dimension + 1 :])
        return Grid(reshape(self.array, shape), digits)

    def flat(self, dimension: int) -> Grid:
        """A dimension in one axis."""
        if self.digits[dimension] == 1:
            return self
        return self.reshaped(dimension, (self.length(dimension),))

    def joined(self, dimension: int) -> Grid:
        """A dimension and the next as one."""
        count = self.digits[dimension] + self.digits[dimension + 1]
        return Grid(self.array, (*self.digits[:dimension], count, *self.digits[dimension + 2 :]))

    def split(self, dimension: int, size: int) -> Grid:
        """A dimension as two, the inner of ``size``, which divides it."""
        lengths, inner = list(self.lengths(dimension)), list[int]()
        left = size
        while lengths and left % lengths[-1] == 0:
            left //= lengths[-1]
            inner.insert(0, lengths.pop())
        if left > 1:
            if not lengths or lengths[-1] % left:
                length = self.length(dimension)
                return self.reshaped(dimension, (length // size,), (size,))
            lengths[-1] //= left
            inner.insert(0, left)
        return self.reshaped(dimension, lengths or (1,), inner or (1,))

    def transposed(self, dimension: int) -> Grid:
        """A dimension and the next change places."""
        first = sum(self.digits[:dimension])
        outer, inner = self.digits[dimension : dimension + 2]
        order = list(range(self.array.ndim))
        order[first : first + outer + inner] = [
            *range(first + outer, first + outer + inner),
            *range(first, first + outer),
        ]
        digits = (*self.digits[:dimension], inner, outer, *self.digits[dimension + 2 :])
        return Grid(self.array.transpose(order), digits)

    def slid(self, dimension: int, size: int, step: int) -> Grid:
        """Windows of a dimension, with their elements in the next."""
        bounded((1,) * (self.array.ndim + 1))
        grid = self.flat(dimension)
        axis = sum(grid.digits[:dimension])
        windows: Array = sliding_window_view(grid.array, size, axis=axis)
        windows = windows[(slice(None),) * axis + (slice(None, None, step),)]
        digits = (*grid.digits[:dimension], 1, *grid.digits[dimension:])
        return Grid(np.moveaxis(windows, -1, axis + 1), digits)

    def padded(self, dimension: int, left: int, right: int, fill: float) -> Grid:
        """A constant border around a dimension; negative amounts crop."""
        grid = self.flat(dimension)
        axis = sum(grid.digits[:dimension])
        array = grid.array
        # 32-bit floats hold inputs as they are stored; a constant may have more places.
        if array.dtype == np.float32 and float(np.float32(fill)) != fill:
            array = array.astype(np.float64)
        length, before = array.shape[axis], (slice(None),) * axis
        padded = length + left + right
        first, end = max(0, -left), min(length, padded - left)
        if left <= 0 and right <= 0 and first < end:
            return Grid(array[(*before, slice(first, end))], grid.digits)
        shape = (*array.shape[:axis], padded, *array.shape[axis + 1 :])
        result = np.full(bounded(shape), fill, array.dtype)
        if first < end:
            part = array[(*before, slice(first, end))]
            result[(*before, slice(first + left, end + left))] = part
        return Grid(result, grid.digits)

    def reordered(self, dimension: int, kind: OrderKind, amount: int) -> Grid:
        """A dimension in another order, see :class:`mapper.ast_model.nodes.Reorder`."""
        match kind:
            case OrderKind.STRIDE:
                return self.split(dimension, amount).transposed(dimension).joined(dimension)
            case OrderKind.REVERSE:
                first = sum(self.digits[:dimension])
                turned = (slice(None, None, -1),) * self.digits[dimension]
                return Grid(self.array[(slice(None),) * first + turned], self.digits)

    def element(self, dimension: int, index: int) -> Grid:
        """One element of a dimension, without it."""
        first = sum(self.digits[:dimension])
        position = np.unravel_index(index, self.lengths(dimension))
        array = self.array[(slice(None),) * first + tuple(int(p) for p in position)]
        return Grid(array, (*self.digits[:dimension], *self.digits[dimension + 1 :]))

    def part(self, dimension: int, start: int, stop: int) -> Grid:
        """Some elements of a dimension, or all of one that has a single one."""
        lengths = self.lengths(dimension)
        if math.prod(lengths) == 1:
            return self
        inner = math.prod(lengths[1:])
        if start % inner or (stop % inner and stop < math.prod(lengths)):
            return self.flat(dimension).part(dimension, start, stop)
        first = sum(self.digits[:dimension])
        chosen = slice(start // inner, -(-stop // inner))
        return Grid(self.array[(slice(None),) * first + (chosen,)], self.digits)

    def under(self, bound: int, depth: int) -> Grid:
        """With dimensions of length 1 put in from ``bound`` up to ``depth``."""
        if bound == depth:
            return self
        first = sum(self.digits[:bound])
        added = depth - bound
        bounded((1,) * (self.array.ndim + added))
        array = np.expand_dims(self.array, tuple(range(first, first + added)))
        return Grid(array, (*self.digits[:bound], *(1,) * added, *self.digits[bound:]))

    def lengthened(self, dimension: int, length: int) -> Grid:
        """A dimension of length 1 made longer; it repeats its element."""
        if length == 1 or self.length(dimension) == length:
            return self
        axis = sum(self.digits[: dimension + 1]) - 1
        shape = (*self.array.shape[:axis], length, *self.array.shape[axis + 1 :])
        return Grid(np.broadcast_to(self.array, shape), self.digits)

    def whole(self) -> Array:
        """The array with one axis a dimension."""
        return reshape(self.array, self.shape)


def reshape(array: Array, shape: Sequence[int]) -> Array:
    """As NumPy does; LimitError if it would write too large an array."""
    if tuple(shape) == array.shape:
        return array
    if len(shape) > MAX_AXES:
        bounded(shape)
    if array.size > MAX_ELEMENTS:
        try:
            return array.reshape(shape, copy=False)
        except ValueError:  # it would be written, which is too much
            bounded(shape)
    return array.reshape(shape)


def aligned(grids: Sequence[Grid]) -> list[Grid]:
    """Grids of as many dimensions, with the same axes, as NumPy broadcasts them."""
    if len({grid.digits for grid in grids}) == 1 and all(d == 1 for d in grids[0].digits):
        return list(grids)
    shapes: list[list[int]] = [[] for _ in grids]
    digits: list[int] = []
    for dimension in range(len(grids[0].digits)):
        found = [grid.lengths(dimension) for grid in grids]
        axes = _common([lengths for lengths in found if math.prod(lengths) > 1])
        digits.append(len(axes))
        for shape, lengths in zip(shapes, found, strict=True):
            shape += axes if math.prod(lengths) > 1 else (1,) * len(axes)
    return [
        Grid(reshape(grid.array, shape), tuple(digits))
        for grid, shape in zip(grids, shapes, strict=True)
    ]


def _common(found: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The fewest axes that every one of these can be cut into; one axis if there are none."""
    if not found:
        return (1,)
    sizes = {1}
    for lengths in found:
        size = 1
        for length in reversed(lengths):
            size *= length
            sizes.add(size)
    steps = sorted(sizes)
    if any(after % before for before, after in pairwise(steps)):
        return (steps[-1],)
    return tuple(b // a for a, b in reversed(list(pairwise(steps))))
