"""Times of candidates drawn: the distribution of one, the intervals of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from api.dashboard.views.scales import Scale, scale_around
from api.dashboard.views.trials import Bin, Distribution


@dataclass(frozen=True, slots=True)
class Column:
    """A bin as a rectangle: all in percent of the figure, from its left lower corner."""

    bin: Bin
    x: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """A distribution as columns with marks for the median and its interval."""

    columns: tuple[Column, ...]
    median: float
    low: float
    high: float
    least_ms: float
    most_ms: float
    beyond: int


def histogram(found: Distribution) -> Histogram:
    """The figure of a distribution."""
    scale = scale_around((found.least_ms, found.bins[-1].high_ms), 0.02)
    highest = max(bin_.count for bin_ in found.bins)
    return Histogram(
        tuple(
            Column(
                bin_,
                scale.at(bin_.low_ms),
                max(1.0, round(scale.at(bin_.high_ms) - scale.at(bin_.low_ms), 3)),
                round(100 * bin_.count / highest, 3),
            )
            for bin_ in found.bins
        ),
        scale.at(found.median_ms),
        scale.at(found.interval.low_ms),
        scale.at(found.interval.high_ms),
        scale.least,
        scale.most,
        found.beyond,
    )


@dataclass(frozen=True, slots=True)
class TimeRow:
    """A candidate's times on a common scale: places in percent, the range and the interval."""

    least: float
    most: float
    low: float
    high: float
    median: float


@dataclass(frozen=True, slots=True)
class TimeRows:
    """Several candidates on one scale; a row is None where there are no times."""

    rows: tuple[TimeRow | None, ...]
    scale: Scale | None


def time_rows(found: Sequence[Distribution | None]) -> TimeRows:
    """The rows of distributions, in their order."""
    known = [one for one in found if one is not None]
    if not known:
        return TimeRows((None,) * len(found), None)
    scale = scale_around([edge for one in known for edge in (one.least_ms, one.bins[-1].high_ms)])
    return TimeRows(
        tuple(
            None
            if one is None
            else TimeRow(
                scale.at(one.least_ms),
                scale.at(one.most_ms),
                scale.at(one.interval.low_ms),
                scale.at(one.interval.high_ms),
                scale.at(one.median_ms),
            )
            for one in found
        ),
        scale,
    )


def verdict(first: Distribution, second: Distribution) -> str:
    """How the second stands to the first, in words: only what the intervals bear out."""
    ratio = second.median_ms / first.median_ms
    if second.interval.high_ms < first.interval.low_ms:
        return f"{1 / ratio:.2f} times as fast"
    if second.interval.low_ms > first.interval.high_ms:
        return f"{ratio:.2f} times as slow"
    return "no difference that the trials bear out"
