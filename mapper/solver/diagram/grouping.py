"""Equal rows of several columns, found without comparing rows as objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Column = NDArray[Any]
Indices = NDArray[np.intp]

# Keys up to this many per row are looked up in a table, which is faster than sorting.
_DENSE = 8
_DENSE_FLOOR = 1 << 16
_LARGEST_KEY = 1 << 62


def group_rows(columns: Sequence[Column], rows: int) -> tuple[Indices, Indices]:
    """Group equal rows of columns of shape ``(rows,)``.

    Returns one row of each group, and the group of each row; groups are numbered by their
    key, so that the same rows in another order give the same groups.
    """
    if not rows:
        return np.zeros(0, np.intp), np.zeros(0, np.intp)
    key: Column | None = None
    size = 1
    for column in columns:
        numbers, distinct = _numbers(column, rows)
        if distinct == 1:
            continue
        if key is None:
            key, size = numbers, distinct
            continue
        if size * distinct > _LARGEST_KEY:
            first, key = _group(key, size, rows)
            size = len(first)
            first, numbers = _group(numbers, distinct, rows)
            distinct = len(first)
        key = key * distinct + numbers
        size *= distinct
    if key is None:
        return np.zeros(1, np.intp), np.zeros(rows, np.intp)
    return _group(key, size, rows)


def group_words(words: NDArray[np.uint64]) -> tuple[Indices, Indices]:
    """As :func:`group_rows`, for states as columns of 64-bit words of shape ``(words, rows)``."""
    rows = words.shape[1]
    used = [word for word in words if word.any()]
    if len(used) < 2 or rows < 2:
        return group_rows(used, rows)
    # One sort of a hash instead of one of each word; equality is checked, not believed.
    with np.errstate(over="ignore"):
        key = used[0].copy()
        for place, word in enumerate(used[1:]):
            key *= _ODD
            key ^= key >> np.uint64(29)
            key += word * _SPREAD[place % len(_SPREAD)]
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    inverse = inverse.reshape(rows)
    if all((word[first][inverse] == word).all() for word in used):
        return first, inverse
    return group_rows(list(words), rows)


_ODD = np.uint64(0x9E3779B97F4A7C15)
_SPREAD = tuple(np.uint64(n) for n in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93))


def _numbers(column: Column, rows: int) -> tuple[Column, int]:
    """The column as int64 from 0 below a bound, equal where the column is equal."""
    if column.dtype == np.bool_:
        return column.astype(np.int64), 2
    if column.dtype == object:
        # Integers beyond 64 bits: sorted as Python compares them.
        distinct, inverse = np.unique(column, return_inverse=True)
        return inverse.reshape(rows).astype(np.int64), len(distinct)
    low, high = int(column.min()), int(column.max())
    if column.dtype == np.uint64 or high - low >= _LARGEST_KEY:
        distinct, inverse = np.unique(column, return_inverse=True)
        return inverse.reshape(rows).astype(np.int64), len(distinct)
    return (column.astype(np.int64, copy=False) - low), high - low + 1


def _group(key: Column, size: int, rows: int) -> tuple[Indices, Indices]:
    if size <= max(_DENSE * rows, _DENSE_FLOOR if rows > 512 else 0):
        table = np.full(size, -1, np.int64)
        # Written backwards so that the first row with a key stays.
        table[key[::-1]] = np.arange(rows - 1, -1, -1)
        present = np.flatnonzero(table >= 0)
        first = table[present]
        table[present] = np.arange(len(present))
        return first.astype(np.intp, copy=False), table[key].astype(np.intp, copy=False)
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return first, inverse.reshape(rows)
