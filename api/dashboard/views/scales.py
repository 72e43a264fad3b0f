"""Where values lie in a figure that is 100 units wide, on a linear or a logarithmic axis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import log10


@dataclass(frozen=True, slots=True)
class Scale:
    """From ``least`` (0) to ``most`` (100)."""

    least: float
    most: float
    is_log: bool = False

    def at(self, value: float) -> float:
        """The place of a value, within the figure."""
        if self.most <= self.least:
            return 50.0
        if self.is_log:
            value = max(value, self.least)
            place = 100 * log10(value / self.least) / log10(self.most / self.least)
        else:
            place = 100 * (value - self.least) / (self.most - self.least)
        return round(min(100.0, max(0.0, place)), 3)


def scale_around(values: Iterable[float], margin: float = 0.06) -> Scale:
    """A scale that holds all values with some room on both sides."""
    listed = list(values)
    least, most = min(listed), max(listed)
    room = (most - least) * margin or abs(most) * margin or 1.0
    return Scale(least - room, most + room)


def log_scale_around(values: Iterable[float], margin: float = 0.06) -> Scale:
    """A logarithmic scale that holds all positive values with some room on both sides; others
    stand at its beginning."""
    positive = [value for value in values if value > 0] or [1.0]
    least, most = min(positive), max(positive)
    room = (most / least) ** margin if most > least else 2.0
    return Scale(least / room, most * room, is_log=True)


def log_share(value: int, most: int) -> float:
    """How much of 100 a number takes where ``most`` takes all, on a logarithmic scale that
    starts at 1; 0 for nothing."""
    if value < 1:
        return 0.0
    # log10 takes integers that are larger than any float, as numbers of mappings are.
    return round(100 * log10(value + 1) / log10(most + 1), 3)
