"""Points of two objectives as characters, for terminals."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH = 64
HEIGHT = 16


def plot(points: Sequence[tuple[float, float]], x_name: str, y_name: str) -> str:
    """A scatter plot; empty without points. The axes span the points."""
    if not points:
        return ""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    canvas = [[" "] * WIDTH for _ in range(HEIGHT)]
    for x, y in points:
        column = _position(x, min(xs), max(xs), WIDTH)
        row = HEIGHT - 1 - _position(y, min(ys), max(ys), HEIGHT)
        canvas[row][column] = "*"
    left = max(len(f"{max(ys):g}"), len(f"{min(ys):g}"))
    labels = {0: f"{max(ys):g}", HEIGHT - 1: f"{min(ys):g}"}
    lines = [f"{y_name}"]
    lines += [f"{labels.get(n, ''):>{left}} |{''.join(row).rstrip()}" for n, row in
              enumerate(canvas)]  # fmt: skip
    low, high = f"{min(xs):g}", f"{max(xs):g} {x_name}"
    lines.append(f"{'':>{left}} +{'-' * WIDTH}")
    lines.append(f"{'':>{left}}  {low}{high:>{WIDTH - len(low)}}")
    return "\n".join(lines)


def _position(value: float, low: float, high: float, cells: int) -> int:
    return 0 if high <= low else min(cells - 1, int((value - low) / (high - low) * cells))
