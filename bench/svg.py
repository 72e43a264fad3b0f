"""Line, scatter and bar charts as SVG text: the few shapes that the docs need, no library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

_HEIGHT = 420
_LEFT, _TOP, _BOTTOM = 70, 40, 55
_ACROSS = 460
#: No common sans-serif font is wider in the mean of a name: 0.63 of the height of 12.
_CHARACTER = 7.6
_BEFORE_NAME = 32
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


@dataclass(frozen=True)
class Bars:
    """A bar for each category; None where there is none."""

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Panel:
    """One of several bar charts over the same categories, with the axis of its values."""

    axis: Axis
    bars: Sequence[Bars]


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
    right, bottom = _LEFT + _ACROSS, _HEIGHT - _BOTTOM
    across = _Scale(x, xs, _LEFT, right)
    up = _Scale(y, ys, bottom, _TOP)
    parts = []
    for tick in across.ticks():
        at = across.place(tick)
        parts.append(f'<path d="M{at:.1f} {_TOP}V{bottom}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{at:.1f}" y="{bottom + 18}" text-anchor="middle">{tick:g}</text>')
    parts += _upright(y, up, _TOP, bottom, right)
    middle = (_LEFT + right) / 2
    parts.append(
        f'<text x="{middle:.0f}" y="{_HEIGHT - 14}" text-anchor="middle">{escape(x.title)}</text>'
    )
    for number, one in enumerate(series):
        places = [(across.place(a), up.place(b)) for a, b in one.points]
        parts += _drawn(one.style, places, _colour(number))
    return _document(title, [one.name for one in series], parts, right, _HEIGHT)


def bar_charts(title: str, categories: Sequence[str], panels: Sequence[Panel]) -> str:
    """An SVG document of bar charts one below the other; their bars have one legend.

    All panels have the same names in the same order, and values for all categories. Bars begin
    at the axis's low value, which is given; the highest is that of the data.
    """
    names = [one.name for one in panels[0].bars]
    widest = max(len(category) for category in categories)
    step = max(_CHARACTER * (widest + 1), 12.0 * (len(names) + 1))
    right = _LEFT + step * len(categories)
    height = (_HEIGHT - _TOP - _BOTTOM) * 3 / 4
    parts: list[str] = []
    bottom = float(_TOP)
    for panel in panels:
        top, bottom = bottom, bottom + height
        values = [v for one in panel.bars for v in one.values if v is not None] or [1.0]
        up = _Scale(panel.axis, values, bottom, top)
        parts += _upright(panel.axis, up, top, bottom, right)
        width = step * 0.8 / len(names)
        for number, one in enumerate(panel.bars):
            for place, value in enumerate(one.values):
                if value is not None:
                    at = _LEFT + step * (place + 0.1) + width * number
                    end = up.place(value)
                    parts.append(
                        f'<rect x="{at:.1f}" y="{end:.1f}" width="{width - 1:.1f}" '
                        f'height="{bottom - end:.1f}" fill="{_colour(number)}"/>'
                    )
        for place, category in enumerate(categories):
            at = _LEFT + step * (place + 0.5)
            parts.append(
                f'<text x="{at:.1f}" y="{bottom + 18:.0f}" text-anchor="middle">'
                f"{escape(category)}</text>"
            )
        bottom += 40
    return _document(title, names, parts, right, bottom)


def _upright(axis: Axis, up: _Scale, top: float, bottom: float, right: float) -> list[str]:
    """The axis on the left, its lines across, and the frame's two sides."""
    parts: list[str] = []
    for tick in up.ticks():
        at = up.place(tick)
        parts.append(f'<path d="M{_LEFT} {at:.1f}H{right:.1f}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{tick:g}</text>')
    parts.append(
        f'<path d="M{_LEFT} {top:.1f}V{bottom:.1f}H{right:.1f}" fill="none" stroke="#333"/>'
    )
    parts.append(
        f'<text transform="translate(18 {(top + bottom) / 2:.0f}) rotate(-90)" '
        f'text-anchor="middle">{escape(axis.title)}</text>'
    )
    return parts


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _document(
    title: str, names: Sequence[str], parts: Sequence[str], right: float, height: float
) -> str:
    """The drawing with its title above and the legend on the right, as wide as they need."""
    longest = max((len(name) for name in names), default=0)
    width = right + _BEFORE_NAME + _CHARACTER * longest + 8
    width = max(width, _LEFT + _CHARACTER * 14 / 12 * len(title))
    legend: list[str] = []
    for number, name in enumerate(names):
        at = _TOP + 8 + 20 * number
        legend.append(
            f'<rect x="{right + 14:.1f}" y="{at - 4}" width="12" height="5" '
            f'fill="{_colour(number)}"/>'
        )
        legend.append(f'<text x="{right + _BEFORE_NAME:.1f}" y="{at + 3}">{escape(name)}</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
            'font-family="sans-serif" font-size="12">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
            f'<text x="{_LEFT}" y="22" font-size="14">{escape(title)}</text>',
            *parts,
            *legend,
            "</svg>",
            "",
        ]
    )


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
