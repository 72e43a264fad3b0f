"""What trials say: medians with intervals, outliers, and whether the machine changed meanwhile.

Times of kernels are skewed: nothing is faster than the kernel, and much can slow it down. So
everything here goes by ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, sqrt
from statistics import median, quantiles

#: Of a normal distribution: deviations over the median absolute deviation.
_MAD_TO_DEVIATION = 1.4826
#: Deviations from the median beyond which a trial is an outlier.
_OUTLIER = 5.0
#: The standard error of a median over that of a mean, of many normal numbers: sqrt(pi / 2).
_MEDIAN_ERROR = 1.2533
#: Trends less likely than this by chance (two-sided) are drift.
_DRIFT_Z = 2.576


@dataclass(frozen=True, slots=True)
class Interval:
    """A median and the order statistics that enclose the true one with ``confidence``."""

    low: float
    median: float
    high: float
    confidence: float

    def apart(self, other: Interval) -> bool:
        """Whether the intervals have nothing in common."""
        return self.high < other.low or other.high < self.low


def median_interval(trials: Sequence[float], confidence: float = 0.95) -> Interval:
    """The distribution-free interval of a median: by the binomial distribution of how many
    trials lie below it (David and Nagaraja, "Order Statistics", 2003, section 7.1).

    With few trials no interval is as sure as asked: then it is the whole range, and the
    confidence says how sure that is. ValueError without trials.
    """
    if not trials:
        raise ValueError("there are no trials")
    ordered = sorted(trials)
    number = len(ordered)
    # P(the median lies between the order statistics k and n + 1 - k), k counted from 1.
    best, sure = 1, _between(1, number)
    for k in range(2, number // 2 + 1):
        held = _between(k, number)
        if held < confidence:
            break
        best, sure = k, held
    return Interval(ordered[best - 1], median(ordered), ordered[number - best], sure)


def _between(k: int, number: int) -> float:
    below = sum(comb(number, i) for i in range(k))
    return max(0.0, 1.0 - 2.0 * below / 2.0**number)


def outliers(trials: Sequence[float]) -> tuple[int, ...]:
    """The places of trials far from the others, by the median absolute deviation."""
    if len(trials) < 4:
        return ()
    middle = median(trials)
    deviation = _MAD_TO_DEVIATION * median(abs(trial - middle) for trial in trials)
    # A clock of whole microseconds may give no deviation at all.
    least = max(deviation, 1e-3 * abs(middle))
    return tuple(
        place for place, trial in enumerate(trials) if abs(trial - middle) > _OUTLIER * least
    )


def relative_error(trials: Sequence[float]) -> float:
    """The standard error of the median over the median, outliers left out; 0 for one trial."""
    far = set(outliers(trials))
    kept = [trial for place, trial in enumerate(trials) if place not in far]
    if len(kept) < 2:
        return 0.0
    middle = median(kept)
    deviation = _MAD_TO_DEVIATION * median(abs(trial - middle) for trial in kept)
    return _MEDIAN_ERROR * deviation / sqrt(len(kept)) / middle if middle > 0 else 0.0


def interquartile(values: Sequence[float]) -> float:
    """The interquartile range over the median; 0 of fewer than four values."""
    if len(values) < 4:
        return 0.0
    low, _, high = quantiles(values, n=4)
    return (high - low) / max(median(values), 1e-12)


def drifts(trials: Sequence[float]) -> bool:
    """Whether times rise or fall in the order of the trials more than by chance.

    The test of Mann and Kendall on ranks; a clock that falls with heat, or other load that
    comes and goes, shows so. Fewer than 8 trials say nothing.
    """
    number = len(trials)
    if number < 8:
        return False
    score = sum(
        (later > earlier) - (later < earlier)
        for place, earlier in enumerate(trials)
        for later in trials[place + 1 :]
    )
    ties: dict[float, int] = {}
    for trial in trials:
        ties[trial] = ties.get(trial, 0) + 1
    variance = number * (number - 1) * (2 * number + 5)
    variance -= sum(t * (t - 1) * (2 * t + 5) for t in ties.values())
    if variance <= 0:
        return False
    # One less for continuity.
    return (abs(score) - 1) / sqrt(variance / 18) > _DRIFT_Z


def stable(trials: Sequence[float], window: int = 3, tolerance: float = 0.02) -> bool:
    """Whether warm-up is over: the last ``window`` trials agree with the ones before them."""
    if len(trials) < 2 * window:
        return False
    before, last = trials[-2 * window : -window], trials[-window:]
    return abs(median(last) - median(before)) <= tolerance * median(before)
