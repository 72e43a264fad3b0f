"""What the page of a candidate shows, and what a comparison takes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.dashboard.candidates import Candidate
from api.dashboard.portraits import Portrait
from api.dashboard.views.host_plans import HostPlanView, host_plan
from api.dashboard.views.nest_trees import KernelTree, tree_of_candidate
from api.dashboard.views.rules import RuleGroup, by_rule
from api.dashboard.views.scales import Scale, log_scale_around
from api.dashboard.views.times import Histogram, histogram
from api.dashboard.views.trials import Distribution, distribution
from db.farm.measurements import StudiedMeasurement
from mapper.measurement import Timed, outcome_detail, outcome_kind


@dataclass(frozen=True, slots=True)
class OutcomeView:
    """How a measurement ended: its kind and what it says beside times."""

    kind: str
    message: str

    @property
    def tone(self) -> str:
        """The class of its badge."""
        return {"timed": "good", "timeout": "warn"}.get(self.kind, "bad")


def outcome_view(found: StudiedMeasurement) -> OutcomeView:
    """The outcome of a measurement in words."""
    outcome = found.measurement.outcome
    kind, detail = outcome_kind(outcome), outcome_detail(outcome)
    match kind:
        case "timed":
            message = f"largest relative error {float(detail['max_relative_error']):.2g}"
        case "timeout":
            message = f"killed after {float(detail['after_s']):g} s"
        case _:
            message = str(detail.get("message", ""))
    return OutcomeView(kind, message)


@dataclass(frozen=True, slots=True)
class CandidateView:
    """Everything but what is asked for later. Parts that are not known are None or empty:
    ``trees``, ``rules`` and ``plan`` where the solver did not answer (``problem`` says why)."""

    outcome: OutcomeView | None
    times: Distribution | None
    figure: Histogram | None
    trees: tuple[KernelTree, ...]
    kernels: tuple[Mapping[str, Any], ...]
    rules: tuple[RuleGroup, ...]
    plan: HostPlanView | None
    is_valid: bool | None
    same_source: bool | None
    problem: str
    facts: tuple[tuple[str, str], ...]
    parameters: tuple[tuple[str, Any], ...]
    local_sizes: tuple[tuple[str, str], ...]

    @property
    def constraints(self) -> int:
        """Instances of rules that are no preferences."""
        return sum(group.number for group in self.rules if not group.is_preference)


def candidate_view(candidate: Candidate, portrait: Portrait) -> CandidateView:
    """The view of a loaded candidate and what a solver child said of it."""
    timed, meant = candidate.timed, candidate.meant
    times = distribution(timed.times_ns) if timed and timed.times_ns else None
    end = portrait.end or {}
    plan = end.get("plan")
    codes = _codes(candidate.record.mapping)
    printed = end.get("source_hash")
    ran = meant.measurement.source_hash if meant else candidate.record.source_hash
    return CandidateView(
        None if meant is None else outcome_view(meant),
        times,
        None if times is None else histogram(times),
        tuple(tree_of_candidate(kernel) for kernel in end.get("kernels", ())),
        tuple(end.get("kernels", ())),
        by_rule(portrait.constraints, codes),
        None if plan is None else host_plan(plan),
        end.get("valid"),
        None if printed is None else printed == ran,
        "" if portrait.problem is None else str(portrait.problem.detail),
        tuple(_facts(candidate)),
        tuple(sorted(candidate.record.parameters.items())),
        tuple(
            (kernel, " × ".join(map(str, sizes)))
            for kernel, sizes in _items(candidate.record.local_sizes)
        ),
    )


def _items(value: Any) -> Iterator[tuple[str, Sequence[int]]]:
    if isinstance(value, Mapping):
        yield from ((str(name), sizes) for name, sizes in value.items())


def _codes(mapping: Any) -> dict[str, int]:
    if not isinstance(mapping, Mapping):
        return {}
    return {str(name): code for name, code in mapping.items() if isinstance(code, int)}


def _facts(candidate: Candidate) -> Iterator[tuple[str, str]]:
    """Facts of the device's software as the study knows it, then those of the measurement."""
    found: dict[str, Any] = {}
    if candidate.device is not None:
        found |= candidate.device.facts
    if candidate.timed is not None:
        found |= candidate.timed.facts
    for name in sorted(found):
        yield name, str(found[name])


@dataclass(frozen=True, slots=True)
class PredictedPoint:
    """A candidate in the figure of a prediction: places in percent, from the left lower corner."""

    x: float
    y: float
    predicted_ms: float
    measured_ms: float


@dataclass(frozen=True, slots=True)
class PredictionView:
    """What the cost model expects beside what was measured. ``own`` is the candidate itself,
    which nothing was fitted to; None where it was never timed."""

    predicted_ms: float
    bound_ms: float
    measured_ms: float | None
    fitted: int
    median_error: float | None
    rank_correlation: float
    points: tuple[PredictedPoint, ...]
    own: PredictedPoint | None
    scale: Scale
    costs: tuple[tuple[str, float, float], ...]


#: What the counts of the model are called, in the order of its constants.
COUNT_NAMES = {
    "launches": "kernel launches",
    "waves": "waves of work-groups",
    "operations": "operations of the busiest unit",
    "private_accesses": "accesses of private memory",
    "spilled": "of these beyond registers",
    "local_bytes": "bytes of local memory",
    "global_bytes": "bytes fetched from global memory",
}


def prediction_view(
    items: Sequence[Mapping[str, float]], end: Mapping[str, Any], measured_ms: float | None
) -> PredictionView:
    """The view of a ``prediction``'s answer."""
    pairs = [(item["predicted_ms"], item["time_ms"]) for item in items]
    own = [] if measured_ms is None else [(end["predicted_ms"], measured_ms)]
    scale = log_scale_around(edge for pair in (*pairs, *own) for edge in pair)
    points = tuple(
        PredictedPoint(scale.at(told), scale.at(real), told, real) for told, real in (*pairs, *own)
    )
    counts, constants = end["counts"], end["constants"]
    return PredictionView(
        end["predicted_ms"],
        end["bound_ms"],
        measured_ms,
        end["fitted"],
        end["median_error"],
        end["rank_correlation"],
        points[: len(pairs)],
        points[-1] if own else None,
        scale,
        tuple(
            (name, counts[key], counts[key] * constants[key] / 1e6)
            for key, name in COUNT_NAMES.items()
        ),
    )


def timed_ms(found: StudiedMeasurement) -> float | None:
    """The median of a measurement in ms; None unless it was timed."""
    outcome = found.measurement.outcome
    return outcome.time_ms if isinstance(outcome, Timed) else None
