"""The front of two objectives, its hypervolume, and the expected gain of a point.

Both objectives are minimised. A front is an array of k points x 2, ascending in the first and so
strictly descending in the second. The hypervolume is the area that it dominates below a
reference point (Zitzler and Thiele, "Multiobjective evolutionary algorithms: a comparative case
study and the strength Pareto approach", 1999).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Point = tuple[float, float]


def front_of(points: Floats) -> Floats:
    """The points that no other equals or beats in both objectives, each once: k x 2."""
    if not len(points):
        return np.zeros((0, 2))
    ordered = points[np.lexsort((points[:, 1], points[:, 0]))]
    least = np.minimum.accumulate(ordered[:, 1])
    better = np.ones(len(ordered), np.bool_)
    better[1:] = ordered[1:, 1] < least[:-1]
    return ordered[better]


def on_front(points: Floats) -> NDArray[np.bool_]:
    """For each point, whether no other is as good in both objectives and better in one."""
    front = front_of(points)
    if not len(front):
        return np.zeros(0, np.bool_)
    place = np.searchsorted(front[:, 0], points[:, 0], side="right") - 1
    return (place >= 0) & (front[place] == points).all(axis=1)


def hypervolume(front: Floats, reference: Point) -> float:
    """The area that a front dominates within the reference point; 0 for an empty front."""
    inside = front[(front < np.array(reference)).all(axis=1)]
    if not len(inside):
        return 0.0
    lower = np.concatenate(([reference[1]], inside[:-1, 1]))
    return float(((reference[0] - inside[:, 0]) * (lower - inside[:, 1])).sum())


def gains(front: Floats, reference: Point, points: Floats) -> Floats:
    """What each point (n x 2) would add to the hypervolume of a front: n numbers, 0 or more."""
    widths, limits = _strips(front, reference, points[:, 1])
    return (widths * np.maximum(limits - points[:, :1], 0.0)).sum(axis=1)


def expected_gains(
    front: Floats, reference: Point, means: Floats, deviations: Floats, second: Floats
) -> Floats:
    """The expectation of :func:`gains` where the first objective is normal and the second known.

    In closed form: the area is cut into strips of constant height limit, and of each the
    expected improvement below the limit is taken (the case of Emmerich, Deutz and Klinkenberg,
    "Hypervolume-based expected improvement", CEC 2011, in which one objective is exact).
    """
    # An untyped package.
    special: Any = import_module("scipy.special")
    widths, limits = _strips(front, reference, second)
    deviation = np.maximum(deviations, 1e-12)[:, None]
    z: Any = (limits - means[:, None]) / deviation
    density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    below: Any = special.ndtr(z)
    return (widths * deviation * (z * below + density)).sum(axis=1)


def _strips(front: Floats, reference: Point, second: Floats) -> tuple[Floats, Floats]:
    """For points with these second objectives: the strips of the area that they could gain, as
    widths (n x strips) along the second objective, and the first objective's limit in each."""
    inside = front[(front < np.array(reference)).all(axis=1)]
    # Between neighbours on the front a point must beat the one with less of the second.
    edges = np.concatenate(([-np.inf], inside[::-1, 1], [reference[1]]))
    limits = np.concatenate(([reference[0]], inside[::-1, 0]))
    low = np.maximum(edges[:-1], second[:, None])
    return np.maximum(edges[1:] - low, 0.0), limits[None, :]


def staircase(points: Sequence[Point]) -> tuple[Point, ...]:
    """The front of some points as tuples, fastest first."""
    array = np.array(points, np.float64).reshape(-1, 2)
    return tuple((float(a), float(b)) for a, b in front_of(array))
