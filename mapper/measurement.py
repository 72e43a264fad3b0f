"""Outcomes of running a candidate, as a sum type: exactly one of these, never a string.

A candidate that ran has two times, both of the device's own clock and of the launches that are not
prepared (those that pack weights run once, not with every image):

- ``span_ms`` is from the first start to the last end, gaps between launches included: what the user
  of the candidate waits for. Fronts, searches, records, published tables and whatever else says
  ``time_ms`` use it. Where it was not measured (results of older boards) the sum stands in.
- ``kernel_ms`` is the sum of the launches' end - start, without the gaps.

Of one launch both are the same. Below some 15 us both hold what the driver does for an event: where
a device is that quick, the fact ``back_to_back_ms`` is the time of one run among many that follow
each other without events.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, assert_never


@dataclass(frozen=True, slots=True)
class Timed:
    """The candidate ran and was right.

    ``trials_ns`` are device times of each timed repetition (sum over the launches, from
    OpenCL event profiling), in order; ``spans_ns`` are first start to last end of the same
    repetitions, none where they were not measured (before there were any).
    ``max_relative_error`` is against the reference.
    """

    trials_ns: tuple[int, ...]
    max_relative_error: float
    compile_ms: float
    facts: dict[str, str] = field(default_factory=dict[str, str])
    spans_ns: tuple[int, ...] = ()

    @property
    def times_ns(self) -> tuple[int, ...]:
        """What :attr:`time_ms` is the median of: the spans, or the trials where there are none."""
        return self.spans_ns or self.trials_ns

    @property
    def kernel_ms(self) -> float:
        """Median of the launches' summed times in milliseconds."""
        return median(self.trials_ns) / 1e6

    @property
    def time_ms(self) -> float:
        """The time that candidates are compared by: ``span_ms``."""
        return self.span_ms

    @property
    def span_ms(self) -> float:
        """Median from first start to last end in milliseconds; else ``kernel_ms``."""
        return median(self.spans_ns) / 1e6 if self.spans_ns else self.kernel_ms


@dataclass(frozen=True, slots=True)
class Wrong:
    """The candidate ran and its output is not the reference's."""

    max_relative_error: float
    first_bad_index: tuple[int, ...]
    message: str


@dataclass(frozen=True, slots=True)
class CompileError:
    """The driver refused the source."""

    message: str


@dataclass(frozen=True, slots=True)
class ResourceError:
    """The device had not enough of something (memory, work-group size, registers)."""

    message: str


@dataclass(frozen=True, slots=True)
class Timeout:
    """The measuring child was killed at its deadline."""

    after_s: float


@dataclass(frozen=True, slots=True)
class Crash:
    """The measuring child died; ``exit_code`` is negative for a signal."""

    exit_code: int
    message: str


Outcome = Timed | Wrong | CompileError | ResourceError | Timeout | Crash

OUTCOME_KINDS: tuple[str, ...] = (
    "timed",
    "wrong",
    "compile-error",
    "resource-error",
    "timeout",
    "crash",
)


def outcome_kind(outcome: Outcome) -> str:
    """The stable kebab-case name of an outcome's kind, as stored and shown."""
    match outcome:
        case Timed():
            return "timed"
        case Wrong():
            return "wrong"
        case CompileError():
            return "compile-error"
        case ResourceError():
            return "resource-error"
        case Timeout():
            return "timeout"
        case Crash():
            return "crash"
        case _:
            assert_never(outcome)


def outcome_detail(outcome: Outcome) -> dict[str, Any]:
    """What an outcome carries besides its trials and spans, as a JSON value.

    JSON has no NaN and no infinity: a number that is one comes by name ("nan", "inf", "-inf"),
    which ``float`` reads back.
    """
    match outcome:
        case Timed():
            return {
                "max_relative_error": _by_name(outcome.max_relative_error),
                "compile_ms": _by_name(outcome.compile_ms),
                "facts": dict(outcome.facts),
            }
        case Wrong():
            return {
                "max_relative_error": _by_name(outcome.max_relative_error),
                "first_bad_index": list(outcome.first_bad_index),
                "message": outcome.message,
            }
        case CompileError() | ResourceError():
            return {"message": outcome.message}
        case Timeout():
            return {"after_s": _by_name(outcome.after_s)}
        case Crash():
            return {"exit_code": outcome.exit_code, "message": outcome.message}
        case _:
            assert_never(outcome)


def launch_fact(kernel: str) -> str:
    """The fact of a candidate with several launches that says what one of them takes: the median of
    its times in ms."""
    return f"kernel.{kernel}.time_ms"


def launch_ms(outcome: Timed, kernel: str) -> float | None:
    """What a launch of a candidate with several took, in ms; None where it was not measured, as by
    older boards."""
    try:
        found = float(outcome.facts[launch_fact(kernel)])
    except (KeyError, ValueError):
        return None
    return found if 0 <= found < math.inf else None


def in_brief(outcome: Outcome, most_text: int = 200) -> Outcome:
    """The outcome for whoever looks at its times alone: the one or two trials and spans in the
    middle, which have the same medians, no facts, and the beginning of what was said."""
    match outcome:
        case Timed():
            return replace(
                outcome,
                trials_ns=_middle(outcome.trials_ns),
                spans_ns=_middle(outcome.spans_ns),
                facts={},
            )
        case Wrong() | CompileError() | ResourceError() | Crash():
            return replace(outcome, message=outcome.message[:most_text])
        case Timeout():
            return outcome
        case _:
            assert_never(outcome)


def thinned(outcome: Outcome, most_trials: int) -> Outcome:
    """The outcome with that many trials at most, spread evenly over them in their order, and the
    spans of the same."""
    if not isinstance(outcome, Timed) or len(outcome.trials_ns) <= most_trials:
        return outcome
    number = len(outcome.trials_ns)
    kept = [place * number // most_trials for place in range(most_trials)]
    return replace(
        outcome,
        trials_ns=tuple(outcome.trials_ns[place] for place in kept),
        spans_ns=tuple(outcome.spans_ns[place] for place in kept) if outcome.spans_ns else (),
    )


def _middle(times_ns: tuple[int, ...]) -> tuple[int, ...]:
    ordered, half = sorted(times_ns), len(times_ns) // 2
    return tuple(ordered[half : half + 1] if len(ordered) % 2 else ordered[half - 1 : half + 1])


def _by_name(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
