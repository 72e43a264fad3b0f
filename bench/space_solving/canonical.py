"""Solutions in a form that does not depend on who found them, so that sets can be compared.

Values become positions in the parameters' lists of values, two bytes each; rows are sorted. Two
digests are equal if and only if (but for a collision of SHA-256) the sets of solutions are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def positions(columns: Sequence[Any], parameters: Mapping[str, Sequence[Any]]) -> Any:
    """Columns of values as an n×k array of positions, big-endian 16 bits.

    ValueError names a parameter with a value that it does not have.
    """
    found = np.empty((len(columns[0]), len(parameters)), dtype=">u2")
    for index, (name, values) in enumerate(parameters.items()):
        known = np.array(values)
        column = np.asarray(columns[index], dtype=None if len(columns[index]) else known.dtype)
        order = np.argsort(known, kind="stable")
        place = np.searchsorted(known, column, sorter=order)
        chosen = order[np.minimum(place, len(known) - 1)]
        if not np.array_equal(known[chosen], column):
            raise ValueError(f"{name} has a value that it cannot have")
        found[:, index] = chosen
    return found


def digest(columns: Sequence[Any], parameters: Mapping[str, Sequence[Any]]) -> tuple[int, str]:
    """The number of distinct solutions, and the SHA-256 of them sorted."""
    found = np.ascontiguousarray(positions(columns, parameters))
    rows = found.view(np.dtype((np.void, found.shape[1] * found.itemsize))).ravel()
    distinct = np.unique(rows)
    return len(distinct), hashlib.sha256(distinct.tobytes()).hexdigest()
