"""Times of several candidates from turns that they share.

A machine that others use is slower in one turn than in the next, by more than good candidates
differ. It is so for all of them alike: each turn's times are taken at the speed of the median turn.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from math import exp, log
from statistics import fmean, median
from typing import TypeVar

from mapper.measurement import Timed
from nestmap.kernel_bench.trial import Trial

_Key = TypeVar("_Key", bound=Hashable)


def together(turns: Mapping[_Key, Sequence[Trial]]) -> dict[_Key, Trial]:
    """Each candidate's turns as one trial: the last if it failed, for then it came to nothing."""
    factors = _factors([found for of in turns.values() if (found := _timed(of)) is not None])
    return {key: _as_one(of, factors) for key, of in turns.items()}


def _timed(turns: Sequence[Trial]) -> list[Timed] | None:
    """The times of all turns, None if one failed."""
    found = [trial.outcome for trial in turns if isinstance(trial.outcome, Timed)]
    return found if len(found) == len(turns) else None


def _factors(contestants: Sequence[Sequence[Timed]]) -> list[float]:
    """For each turn what makes its times those of the median turn, by the geometric mean of all."""
    if not contestants:
        return []
    logarithms = [
        fmean(log(max(outcome.time_ms, 1e-9)) for outcome in turn)
        for turn in zip(*contestants, strict=True)
    ]
    return [exp(median(logarithms) - level) for level in logarithms]


def _as_one(turns: Sequence[Trial], factors: Sequence[float]) -> Trial:
    last, timed = turns[-1], _timed(turns)
    if timed is None or not isinstance(last.outcome, Timed):
        return last
    times = tuple(
        max(1, round(ns * factor))
        for outcome, factor in zip(timed, factors, strict=True)
        for ns in outcome.trials_ns
    )
    error = max(outcome.max_relative_error for outcome in timed)
    outcome = replace(last.outcome, trials_ns=times, max_relative_error=error)
    relative_error = max(trial.relative_error for trial in turns)
    return replace(last, outcome=outcome, relative_error=relative_error)
