"""Sums of products over some axes of arrays, by BLAS.

Most are computed in 64-bit floats. From ``SINGLE_FROM`` multiplications on, sums of at least
``SINGLE_LEAST`` terms are computed in 32-bit floats, ``SINGLE_TERMS`` at a time, and these partial
sums are added in 64 bits. That errs by 2.9e-7 of the root mean square of all sums, whatever their
length (measured; a candidate may err by 8 * 2**-23 * sqrt(terms)): the largest error of half a
million outputs was a 16th of what is allowed for 1,024 terms and a 38th for 4,096. Below 1,024
terms it would be a 7th. Numbers outside 1e-12 to 1e15 stay in 64 bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.ast_model.grids import bounded

Array = NDArray[Any]

#: Multiplications from which on matrices are multiplied in 32-bit floats.
SINGLE_FROM = 2**33
#: Terms that are added in 32-bit floats, at most.
SINGLE_TERMS = 256
#: Terms of a sum from which on 32-bit floats are used at all.
SINGLE_LEAST = 1024
#: Elements of one operand that are copied at a time.
PANEL = 2**21


def independent(array: Array) -> Array:
    """With length 1 in place of axes along which the array only repeats itself."""
    repeats = [s == 0 and n > 1 for s, n in zip(array.strides, array.shape, strict=True)]
    return array[tuple(slice(0, 1) if r else slice(None) for r in repeats)]


def multiplications(factors: Sequence[Array]) -> int:
    """How many multiplications a contraction takes, one of a single array none."""
    shape = np.broadcast_shapes(*(factor.shape for factor in factors))
    return math.prod(shape) * (len(factors) - 1)


def exact(factors: Sequence[Array], terms: int) -> bool:
    """Whether 64-bit floats hold every sum of so many products of integers."""
    largest = (max(int(f.max()), -int(f.min())) for f in factors)
    return math.prod(largest) * terms < 2**53


def contract(left: Array, right: Array, summed: frozenset[int]) -> Array:
    """The sum over some axes of left * right, which broadcast, in 64-bit floats.

    Summed axes stay with length 1. LimitError if the result or a copied operand is too large.
    """
    left, right = independent(left), independent(right)
    # What is summed of one operand alone is summed first.
    alone = tuple(a for a in summed if right.shape[a] == 1 and left.shape[a] > 1)
    left = left.sum(axis=alone, keepdims=True, dtype=np.float64) if alone else left
    alone = tuple(a for a in summed if left.shape[a] == 1 and right.shape[a] > 1)
    right = right.sum(axis=alone, keepdims=True, dtype=np.float64) if alone else right
    if left.size < right.size:
        left, right = right, left
    shape = np.broadcast_shapes(left.shape, right.shape)
    axes = range(left.ndim)
    terms = [a for a in axes if a in summed and shape[a] > 1]
    kept = [a for a in axes if a not in summed and shape[a] > 1]
    both = [a for a in kept if left.shape[a] > 1 and right.shape[a] > 1]
    rows = [a for a in kept if right.shape[a] == 1]
    columns = [a for a in kept if left.shape[a] == 1]
    result = np.empty(bounded([shape[a] for a in (*both, *rows, *columns)]))
    bounded(right.shape)
    a = _ordered(left, both + rows + terms)
    b = _ordered(right, both + terms + columns)
    counts = len(both), len(rows), len(terms), len(columns)
    single = math.prod(shape) >= SINGLE_FROM and (
        math.prod(shape[axis] for axis in terms) >= SINGLE_LEAST
        and _ordinary(left)
        and _ordinary(right)
    )
    _fill(result, a, b, counts, single)
    order = [*both, *rows, *columns]
    back = [order.index(axis) for axis in sorted(order)]
    final = [1 if a in summed else shape[a] for a in axes]
    return result.transpose(back).reshape(final)


def _fill(
    result: Array, left: Array, right: Array, counts: tuple[int, int, int, int], single: bool
) -> None:
    """Products of [both][rows][terms] and [both][terms][columns], a panel of rows at a time."""
    both, rows, terms, columns = counts
    n_both = math.prod(left.shape[:both])
    n_terms = math.prod(left.shape[both + rows :])
    n_columns = math.prod(right.shape[both + terms :])
    dtype = np.float32 if single else np.float64
    large = both > 0 and math.prod(result.shape) * n_terms > PANEL
    if large and left.size // left.shape[0] * 2 > PANEL // 8:
        # Few large products: one after the other.
        for index in range(left.shape[0]):
            _fill(result[index], left[index], right[index], (both - 1, *counts[1:]), single)
        return
    b = right.astype(dtype).reshape(n_both, n_terms, n_columns)
    if rows == 0:
        result[...] = _product(left.astype(dtype).reshape(n_both, 1, n_terms), b).reshape(
            result.shape
        )
        return
    lead = (slice(None),) * both
    longest = left.shape[both]
    row_elements = max(1, left.size // longest)
    step = max(1, PANEL // row_elements)
    if step == 1 and row_elements > 2 * PANEL and rows > 1:
        for index in range(longest):
            part = (*lead, index)
            _fill(result[part], left[part], right, (both, rows - 1, terms, columns), single)
        return
    for start in range(0, longest, step):
        part = (*lead, slice(start, start + step))
        panel = left[part].astype(dtype)
        out = result[part]
        a = panel.reshape(n_both, -1, n_terms)
        out[...] = _product(a, b).reshape(out.shape)


def _product(a: Array, b: Array) -> Array:
    """[both][rows][columns] in 64-bit floats."""
    if a.dtype == np.float64 or a.shape[2] <= SINGLE_TERMS:
        if a.shape[1] == 1 and b.shape[2] == 1:
            return np.einsum("bik,bkj->bij", a, b).astype(np.float64)
        return np.matmul(a, b)
    total = np.zeros((a.shape[0], a.shape[1], b.shape[2]))
    for start in range(0, a.shape[2], SINGLE_TERMS):
        terms = slice(start, start + SINGLE_TERMS)
        total += np.matmul(a[:, :, terms], b[:, terms])
    return total


def _ordered(array: Array, axes: list[int]) -> Array:
    rest = [a for a in range(array.ndim) if a not in axes]
    return array.transpose([*axes, *rest]).reshape([array.shape[a] for a in axes])


def _ordinary(array: Array) -> bool:
    """True if no product of such numbers leaves the range of 32-bit floats."""
    largest = max(float(array.max()), -float(array.min()))
    return array.dtype.name in ("float32", "float64") and 1e-12 < largest < 1e15
