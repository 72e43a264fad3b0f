"""The fastest few candidates once more, in turns, so that the winner is not just the luckiest.

The least of many noisy times is too low, and a machine that was faster for a minute favours
whoever ran then. So the finalists run round by round, each once a round, and their medians over
all trials of all rounds decide. A candidate leaves early once its interval lies above that of
the best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from mapper.measurement import Outcome, Timed
from nestmap.tuning.statistics import Interval, drifts, median_interval

T = TypeVar("T")

ROUNDS = 5
#: How many the command line takes.
FINALISTS = 4
#: Nobody further than this from the fastest can be the fastest.
NEAR = 1.25


@dataclass(frozen=True, slots=True)
class Final(Generic[T]):
    """A finalist: its times over all rounds. ``drifted`` says that they rose or fell with time."""

    entry: T
    interval: Interval
    trials: int
    drifted: bool

    @property
    def time_ms(self) -> float:
        """The median over all trials of all rounds."""
        return self.interval.median / 1e6


@dataclass(slots=True)
class _Standing(Generic[T]):
    entry: T
    trials_ns: list[int] = field(default_factory=list[int])
    out: bool = False


def play_final(
    entries: Sequence[T],
    measure: Callable[[Sequence[T]], Sequence[Outcome | None]],
    *,
    rounds: int = ROUNDS,
    more: Callable[[], bool] = lambda: True,
) -> tuple[Final[T], ...]:
    """Measure entries in turns; the fastest first. What fails once is out and left out.

    ``measure`` has a round's entries measured one after the other, in this order so far as the
    device keeps it, and gives None for those that the time did not suffice for. ``more`` is asked
    before each round but the first, and ends the final where time is over.
    """
    standings = [_Standing(entry) for entry in entries]
    for number in range(rounds):
        if number and not more():
            break
        # From the other end each time, so that nobody always follows the same one.
        there = [s for s in (standings if number % 2 == 0 else reversed(standings)) if not s.out]
        outcomes = measure([standing.entry for standing in there])
        for standing, outcome in zip(there, outcomes, strict=True):
            if isinstance(outcome, Timed):
                standing.trials_ns += outcome.times_ns
            elif outcome is not None:
                standing.out = True
                standing.trials_ns.clear()
        _send_home(standings)
    finals = [
        Final(s.entry, median_interval(s.trials_ns), len(s.trials_ns), drifts(s.trials_ns))
        for s in standings
        if s.trials_ns
    ]
    return tuple(sorted(finals, key=lambda final: final.interval.median))


def _send_home(standings: Sequence[_Standing[T]]) -> None:
    """Whoever's interval lies wholly above the best one's has lost."""
    running = [(s, median_interval(s.trials_ns)) for s in standings if s.trials_ns and not s.out]
    if not running:
        return
    best = min(interval.high for _, interval in running)
    for standing, interval in running:
        standing.out = interval.low > best
