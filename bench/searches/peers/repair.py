"""Suggestions of others made into rows of a recording that is a part of its space."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from bench.searches.recording import Recording


def nearest_row(recording: Recording, places: Sequence[int], taken: Collection[int]) -> int | None:
    """The row nearest to a suggestion (a position for each variable) that is not taken.

    Nearest is where fewest variables differ, then where positions are the least apart over the
    length of their lists. None where every row is taken.
    """
    if len(taken) >= recording.rows:
        return None
    sizes = np.array([max(1, len(values) - 1) for _, values in recording.variables])
    away = np.abs(recording.positions - np.array(places))
    # All distances together weigh less than one variable that differs.
    far = (away > 0).sum(axis=1) + (away / sizes).mean(axis=1) / 2
    far[list(taken)] = np.inf
    return int(np.argmin(far))
