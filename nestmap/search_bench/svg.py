"""Line charts and scatter plots as SVG text: the few shapes that the docs need, no library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

_WIDTH, _HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 230, 40, 55
_COLOURS = ("#1b6ca8", "#c8553d", "#3a7d44", "#7b4f9d", "#b58900", "#4d4d4d", "#d33682", "#2aa198")


@dataclass(frozen=True)
class Series:
    """Points in order; ``style`` joins them by a ``line`` or ``steps``, or leaves them ``dots``."""

    name: str
    points: Sequence[tuple[float, float]]
    style: str = "line"


@dataclass(frozen=True)
class Axis:
    """What an axis shows; logarithmic where ``log`` (values must be positive then)."""

    title: str
    log: bool = False
    low: float | None = None
    high: float | None = None


class _Scale:
    def __init__(self, axis: Axis, values: Sequence[float], start: float, end: float) -> None:
        self._log = axis.log
        low = min(values) if axis.low is None else axis.low
        high = max(values) if axis.high is None else axis.high
        self._low, self._high = self._of(low), self._of(high)
        if self._high - self._low < 1e-12:
            self._high = self._low + 1
        self._start, self._end = start, end

    def _of(self, value: float) -> float:
        return log10(value) if self._log else value

    def place(self, value: float) -> float:
        """Where a value stands, in pixels."""
        share = (self._of(value) - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)

    def ticks(self) -> list[float]:
        """Round values within the range."""
        if self._log:
            powers = range(floor(self._low), ceil(self._high) + 1)
            factors = (1,) if self._high - self._low > 3 else (1, 2, 5)
            values = [factor * 10.0**power for power in powers for factor in factors]
            return [v for v in values if self._low - 1e-9 <= log10(v) <= self._high + 1e-9]
        width = (self._high - self._low) / 5
        step = 10.0 ** floor(log10(width))
        step *= next(factor for factor in (1, 2, 5, 10) if step * factor >= width * 0.999)
        first = ceil(self._low / step - 1e-9)
        return [step * n for n in range(first, floor(self._high / step + 1e-9) + 1)]


def chart(title: str, x: Axis, y: Axis, series: Sequence[Series]) -> str:
    """An SVG document; series without points stand in the legend only."""
    xs = [point[0] for one in series for point in one.points] or [1.0]
    ys = [point[1] for one in series for point in one.points] or [1.0]
    across = _Scale(x, xs, _LEFT, _WIDTH - _RIGHT)
    up = _Scale(y, ys, _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="22" font-size="14">{escape(title)}</text>',
    ]
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    for tick in across.ticks():
        at = across.place(tick)
        parts.append(f'<path d="M{at:.1f} {_TOP}V{bottom}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{at:.1f}" y="{bottom + 18}" text-anchor="middle">{tick:g}</text>')
    for tick in up.ticks():
        at = up.place(tick)
        parts.append(f'<path d="M{_LEFT} {at:.1f}H{right}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{tick:g}</text>')
    parts.append(f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="#333"/>')
    middle = (_LEFT + right) / 2
    parts.append(
        f'<text x="{middle:.0f}" y="{_HEIGHT - 14}" text-anchor="middle">{escape(x.title)}</text>'
    )
    parts.append(
        f'<text transform="translate(18 {(_TOP + bottom) / 2:.0f}) rotate(-90)" '
        f'text-anchor="middle">{escape(y.title)}</text>'
    )
    for number, one in enumerate(series):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [(across.place(a), up.place(b)) for a, b in one.points]
        parts += _drawn(one.style, places, colour)
        at = _TOP + 8 + 20 * number
        parts.append(f'<rect x="{right + 14}" y="{at - 4}" width="12" height="5" fill="{colour}"/>')
        parts.append(f'<text x="{right + 32}" y="{at + 3}">{escape(one.name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _drawn(style: str, places: Sequence[tuple[float, float]], colour: str) -> list[str]:
    if style == "dots":
        return [
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2" fill="{colour}" fill-opacity="0.45"/>'
            for a, b in places
        ]
    if not places:
        return []
    path = [f"M{places[0][0]:.1f} {places[0][1]:.1f}"]
    for a, b in places[1:]:
        path.append(f"H{a:.1f}V{b:.1f}" if style == "steps" else f"L{a:.1f} {b:.1f}")
    return [f'<path d="{"".join(path)}" fill="none" stroke="{colour}" stroke-width="1.8"/>']
