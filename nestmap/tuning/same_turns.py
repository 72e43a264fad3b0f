"""Times of several candidates from turns that they share.

A machine that others use is slower in one turn than in the next, by more than good candidates
differ. Where it is so for most of them, each turn's times are taken at the speed of the usual turn;
what befalls one of them is its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from math import exp, log
from statistics import median
from typing import TypeVar

from mapper.measurement import Timed
from nestmap.tuning.trial import Trial

_Key = TypeVar("_Key", bound=Hashable)
#: Among fewer nobody can tell whose turn it was that went wrong, unless others have not had it.
_FEWEST = 4


def may_go_on(made: Sequence[Trial]) -> bool:
    """Whether a candidate has another turn: who failed came to nothing."""
    return not made or made[-1].time_ms is not None


def together(turns: Mapping[_Key, Sequence[Trial]]) -> dict[_Key, Trial]:
    """Each candidate's turns as one trial: the last if it failed, for then it came to nothing.

    Turns are numbered from the first; some candidates may have fewer.
    """
    factors = _factors([found for of in turns.values() if (found := _timed(of)) is not None])
    return {key: _as_one(of, factors) for key, of in turns.items() if of}


def _timed(turns: Sequence[Trial]) -> list[Timed] | None:
    """The times of all turns, None if one failed."""
    found = [trial.outcome for trial in turns if isinstance(trial.outcome, Timed)]
    return found if found and len(found) == len(turns) else None


def _factors(contestants: Sequence[Sequence[Timed]]) -> list[float]:
    """For each turn what makes its times those of the usual turn among those that all have had.

    In the median of the contestants, so that a hiccup of one leaves it alone. Turns that only some
    have had count at the speed of the others', however few had them: else those would be compared
    at another speed than the rest.
    """
    logarithms = [[log(max(o.time_ms, 1e-9)) for o in outcomes] for outcomes in contestants]
    shared = min(map(len, logarithms), default=0)
    usual = [median(own[:shared]) for own in logarithms]
    factors: list[float] = []
    for turn in range(max(map(len, logarithms), default=0)):
        there = [(own[turn], level) for own, level in zip(logarithms, usual, strict=True)
                 if turn < len(own)]  # fmt: skip
        known = len(there) >= _FEWEST or turn >= shared
        factors.append(exp(-median(time - level for time, level in there)) if known else 1.0)
    return factors


def _as_one(turns: Sequence[Trial], factors: Sequence[float]) -> Trial:
    last, timed = turns[-1], _timed(turns)
    if timed is None or not isinstance(last.outcome, Timed):
        return last
    times = tuple(
        max(1, round(ns * factor))
        for outcome, factor in zip(timed, factors, strict=False)
        for ns in outcome.trials_ns
    )
    error = max(outcome.max_relative_error for outcome in timed)
    outcome = replace(last.outcome, trials_ns=times, max_relative_error=error)
    relative_error = max(trial.relative_error for trial in turns)
    return replace(last, outcome=outcome, relative_error=relative_error)
