"""The front as a staircase in SVG, drawn on the server: it stands without a script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT, MARGIN = 240, 90, 8


@dataclass(frozen=True, slots=True)
class Staircase:
    """A drawing of ``WIDTH`` x ``HEIGHT``: the path of the stairs and a dot for each point."""

    path: str
    dots: tuple[tuple[float, float], ...]
    width: int = WIDTH
    height: int = HEIGHT


def staircase(points: Sequence[tuple[float, float]]) -> Staircase:
    """Of points ``(time, memory)`` on a front, fastest first; time to the right and memory
    upwards, both logarithmic. Between two points the front is the better one's memory."""
    if not points:
        return Staircase("", ())
    xs, ys = ([math.log(max(p[axis], 1e-9)) for p in points] for axis in (0, 1))
    at = [
        (
            _scaled(x, min(xs), max(xs), MARGIN, WIDTH - MARGIN),
            _scaled(y, min(ys), max(ys), HEIGHT - MARGIN, MARGIN),
        )
        for x, y in zip(xs, ys, strict=True)
    ]
    steps = [f"M{at[0][0]:.1f} {0:.1f}V{at[0][1]:.1f}"]
    steps += [f"H{x:.1f}V{y:.1f}" for x, y in at[1:]]
    steps.append(f"H{WIDTH:.1f}")
    return Staircase("".join(steps), tuple((round(x, 1), round(y, 1)) for x, y in at))


def _scaled(value: float, least: float, most: float, start: float, end: float) -> float:
    if most <= least:
        return (start + end) / 2
    return start + (value - least) / (most - least) * (end - start)
