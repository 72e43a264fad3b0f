"""Times that no device can have had: a board is not believed whatever it says."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from db.farm.deadlines import attempt_s
from mapper.errors import InputError, Problem
from mapper.measurement import Outcome, Timed

#: In a job's payload: multiplications with an addition that its candidate cannot do without.
MULTIPLY_ADDS = "multiply_adds"
#: Of what units, clock and vectors make together. Processors have two such units a core at most,
#: and run above the clock that they tell by a half at most.
_MARGIN = 4.0
#: Lanes of a compute unit where the driver tells of none: the most that a GPU's unit has had.
_GPU_LANES = 128
#: Multiply-adds a nanosecond that no device reaches: ten times the largest GPU of 2025, whose 163
#: TFLOP/s in fp32 (MI300X, AMD's data sheet) are 8.2e4. The bound where a device does not tell.
_MOST_RATE = 1e6
_FACTS = ("device.compute_units", "device.max_clock_mhz", "device.kind", "profile")
#: The slowest trial over the fastest. A machine that sleeps makes a second of a microsecond.
_MOST_SPREAD = 1e6
#: A run's span over the sum of its launches, which one queue runs one after the other. Half, since
#: clocks tick coarsely and a driver may stamp an end after the next start.
_LEAST_SPAN = 0.5


def require_possible(
    outcome: Outcome,
    payload: Mapping[str, Any],
    facts: Mapping[str, Any],
    known: Iterable[Mapping[str, Any]] = (),
) -> None:
    """InputError for trials or spans that the device of these facts cannot have had, and for facts
    that no device has.

    ``known`` are facts of it from before. A result without facts, or with better ones, does not
    make a device faster: what they all say is completed by the others, and the least counts.
    """
    if not isinstance(outcome, Timed):
        return
    for name, times in (("trials_ns", outcome.trials_ns), ("spans_ns", outcome.spans_ns)):
        shortest, longest = min(times, default=0), max(times, default=0)
        if longest > _MOST_SPREAD * shortest:
            found = f"{shortest} to {longest} ns"
            raise _impossible(name, "differ by more than a million times", found, "")
        # Trials follow each other on one device, and the board was killed at its deadline.
        if sum(times) > attempt_s(payload) * 1e9:
            raise _impossible(
                name,
                "took longer than the whole attempt may",
                f"{sum(times)} ns",
                f"{attempt_s(payload):.0f} s or less",
            )
    for trial, span in zip(outcome.trials_ns, outcome.spans_ns, strict=False):
        if span < _LEAST_SPAN * trial:
            raise _impossible(
                "spans_ns",
                "are shorter than their launches, which follow each other",
                f"{span} ns of a trial of {trial} ns",
                f"{trial} ns or more",
            )
    if most_rate(facts) == math.inf:
        raise InputError(Problem("/facts", "units, clock or vectors are of no device"))
    # The shorter of the two, so that neither makes the other believed.
    fastest = min((*outcome.trials_ns, *outcome.spans_ns))
    work, rate = payload.get(MULTIPLY_ADDS), least_rate((facts, *known))
    if isinstance(work, int) and fastest * rate < work:
        least = math.ceil(Fraction(work) / Fraction(rate))
        raise _impossible(
            "trials_ns",
            f"are of a device of {rate * 1e9:.3g} multiply-adds a second at most",
            f"{fastest} ns for {work} of them",
            f"{least} ns or more",
        )


def least_rate(sources: Sequence[Mapping[str, Any]]) -> float:
    """The least that facts of one device from several sources leave possible, in multiply-adds a
    nanosecond; where none tells, what no device reaches."""
    rates: list[float] = []
    for own in sources:
        completed: dict[str, Any] = {}
        for source in (*sources, own):
            completed |= {name: source[name] for name in _FACTS if name in source}
        rate = most_rate(completed)
        if rate is not None and rate < math.inf:
            rates.append(rate)
    return min(rates, default=_MOST_RATE)


def most_rate(facts: Mapping[str, Any]) -> float | None:
    """Multiply-adds a nanosecond that a device surely stays below, by its own facts: four times
    compute units, clock and widest vector. None where it does not tell, infinity for what no
    device has."""
    try:
        units = int(facts["device.compute_units"])
        clock_mhz = float(facts["device.max_clock_mhz"])
        kind = str(facts["device.kind"])
        widths = facts["profile"]["vector_widths"]
        lanes = max(int(width) for width in widths)
        if kind != "cpu":
            lanes = max(lanes, _GPU_LANES)
        rate = _MARGIN * units * clock_mhz / 1e3 * lanes
    except (KeyError, TypeError, ValueError):
        return None
    except OverflowError:
        return math.inf
    if not rate <= _MOST_RATE:
        return math.inf
    return rate if rate > 0 else None


def _impossible(field: str, what: str, found: str, allowed: str) -> InputError:
    return InputError(Problem(f"/outcome/{field}", f"cannot be: they {what}", found, allowed))
