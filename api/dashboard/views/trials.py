"""Trials of a measurement as a distribution: what the median is worth.

The interval of a median comes from order statistics and assumes nothing of the distribution:
of n independent trials the i-th smallest and the i-th largest hold the true median between them
with probability 1 - 2 P(B < i), where B is binomial with n and 1/2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median, quantiles

MOST_BINS = 24
#: Interquartile ranges above the upper quartile beyond which a trial is not drawn.
FAR = 8.0


@dataclass(frozen=True, slots=True)
class Interval:
    """Where the true median is, in ms, with this probability; with few trials that is less than
    what was wanted, and the interval is the whole range."""

    low_ms: float
    high_ms: float
    coverage: float


@dataclass(frozen=True, slots=True)
class Bin:
    """Trials from ``low_ms`` (with it) up to ``high_ms``; the last bin has its end as well."""

    low_ms: float
    high_ms: float
    count: int


@dataclass(frozen=True, slots=True)
class Distribution:
    """Of trials, in ms. ``bins`` leave out ``beyond`` trials that took so much longer that the
    others could not be told apart."""

    trials_ms: tuple[float, ...]
    median_ms: float
    least_ms: float
    most_ms: float
    lower_quartile_ms: float
    upper_quartile_ms: float
    interval: Interval
    bins: tuple[Bin, ...]
    beyond: int

    @property
    def spread(self) -> float:
        """The interquartile range over the median: dimensionless, 0 where all trials are alike or
        take no time (a store may hold what is refused today)."""
        width = self.upper_quartile_ms - self.lower_quartile_ms
        return width / self.median_ms if self.median_ms > 0 else 0.0


def distribution(trials_ns: Sequence[int], confidence: float = 0.95) -> Distribution:
    """The distribution of at least one trial (device times in ns)."""
    trials = tuple(trial / 1e6 for trial in trials_ns)
    ordered = sorted(trials)
    quarters = quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else ordered * 3
    far_ms = quarters[2] + FAR * max(quarters[2] - quarters[0], 0.01 * quarters[2])
    beyond = sum(trial > far_ms for trial in ordered)
    return Distribution(
        trials,
        median(ordered),
        ordered[0],
        ordered[-1],
        quarters[0],
        quarters[2],
        median_interval(ordered, confidence),
        _bins(ordered[: len(ordered) - beyond], quarters[2] - quarters[0]),
        beyond,
    )


def median_interval(ordered: Sequence[float], confidence: float = 0.95) -> Interval:
    """The narrowest pair of order statistics that holds the median with ``confidence``."""
    number = len(ordered)
    index, ways = 0, 1
    tail = ways / (1 << number)
    while index < (number - 1) // 2:
        ways = ways * (number - index) // (index + 1)
        following = tail + ways / (1 << number)
        if 1 - 2 * following < confidence:
            break
        index, tail = index + 1, following
    return Interval(ordered[index], ordered[number - 1 - index], max(0.0, 1 - 2 * tail))


def _bins(ordered: Sequence[float], interquartile: float) -> tuple[Bin, ...]:
    """Widths by Freedman and Diaconis, as many as can be told apart in a figure."""
    least, most = ordered[0], ordered[-1]
    if most == least:
        return (Bin(least, most, len(ordered)),)
    width = 2 * interquartile / len(ordered) ** (1 / 3) or (most - least) / 8
    number = max(4, min(MOST_BINS, ceil((most - least) / width)))
    step = (most - least) / number
    counts = [0] * number
    for trial in ordered:
        counts[min(number - 1, int((trial - least) / step))] += 1
    return tuple(
        Bin(least + place * step, least + (place + 1) * step, count)
        for place, count in enumerate(counts)
    )
