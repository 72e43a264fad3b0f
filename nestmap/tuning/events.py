"""What a tuning run tells while it goes: frozen values for progress bars and logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mapper.measurement import Outcome


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The device is open and the studies are; ``stored`` candidates were measured before."""

    device: str
    variants: tuple[str, ...]
    stored: int


@dataclass(frozen=True, slots=True)
class State:
    """The run so far, earlier runs of the same studies included.

    ``volume`` is the front's share of the box between the best and the worst seen, and
    ``left_s`` what is left until the budget ends, as far as that can be told.
    """

    tried: int
    outcomes: Mapping[str, int]
    best_ms: float | None
    best_variant: str
    front: int
    elapsed_s: float
    volume: float = 0.0
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class CandidateMeasured:
    """One more outcome is in the store; ``state`` includes it."""

    candidate: str
    variant: str
    outcome: Outcome
    state: State


@dataclass(frozen=True, slots=True)
class CandidateRefused:
    """An assignment for which no kernel could be generated, or a space that gives none."""

    variant: str
    message: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """Why the run is over: ``candidates``, ``seconds``, ``exhausted`` or ``interrupted``."""

    reason: str
    state: State


Event = RunStarted | CandidateMeasured | CandidateRefused | RunEnded
Listener = Callable[[Event], None]


def silent(event: Event) -> None:
    """A listener that ignores everything."""
    del event
