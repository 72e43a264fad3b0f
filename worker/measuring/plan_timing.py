"""The measurement of one candidate inside the child: verify, warm up, time, verify again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import inf
from statistics import median
from typing import Any

import numpy as np

from mapper.host_plan import HostPlan
from mapper.measurement import Outcome, Timed, Wrong, launch_fact
from worker.devices.facts import machine_state
from worker.measuring.comparison import NOT_FINITE_ERROR, Reference
from worker.measuring.driver_errors import PlanFailure
from worker.measuring.loaded_plan import LoadedPlan, RunTimes, Session
from worker.measuring.settings import Protocol, Tolerance

#: A reference kernel whose time changed by more than this factor between before and after
#: says that the machine's speed changed. A quarter is well above the jitter of its best of 5.
UNSTABLE_RATIO = 1.25
#: What a next run may take beyond the last one before we would rather not start it.
_RUN_MARGIN = 1.5


def _silent(stage: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Terms:
    """How a candidate is measured, with the seconds that it has.

    ``timeout_s`` is for all but the waiting, ``running_s`` for what happens in ``turn``: from the
    first run to the last. No run is started that would probably pass either, so that a slow
    candidate that was verified in time is timed and not lost. ``say`` hears each stage
    (:data:`worker.measuring.settings.STAGES`) before it begins; what ``turn`` waits for is its own
    to say. ``reference_ns`` times a known kernel around the timed runs, ``back_to_back_ns`` runs of
    a plan that takes so many ns by its events without these (None where that is not worth it).
    """

    tolerance: Tolerance
    protocol: Protocol
    timeout_s: float
    running_s: float = inf
    turn: Callable[[], AbstractContextManager[None]] = nullcontext
    say: Callable[[str], None] = _silent
    reference_ns: Callable[[], int] | None = None
    back_to_back_ns: Callable[[LoadedPlan, int], float | None] | None = None

    @property
    def compiles_apart(self) -> bool:
        """Whether nothing may be compiled any more once the candidate runs."""
        return self.running_s < inf or self.turn is not nullcontext


@dataclass(slots=True)
class _Ran:
    """What came of the runs, before it is judged; ``outputs`` are of the verified run and of the
    last one, ``outside`` says what was written there."""

    first: RunTimes
    first_wall_ms: float
    outputs: list[np.ndarray[Any, Any]]
    outside: str
    trials: list[RunTimes]
    note: str = ""
    reference_ns: tuple[int, int] = (0, 0)
    back_to_back_ns: float | None = None


def measure_plan(
    session: Session,
    plan: HostPlan,
    inputs: Mapping[str, np.ndarray[Any, Any]],
    reference: Reference,
    terms: Terms,
) -> tuple[Outcome, bool]:
    """Measure ``plan``; also say whether the process should be retired."""
    deadline = time.monotonic() + terms.timeout_s
    try:
        with LoadedPlan(session, plan, with_guards=True) as loaded:
            loaded.fill_inputs(inputs)
            if terms.compiles_apart:
                loaded.compile_for_groups(terms.running_s)
            outcome = verify_and_time(loaded, reference, terms, deadline - time.monotonic())
    except PlanFailure as failure:
        return failure.outcome, failure.retire
    if isinstance(outcome, Timed):
        outcome.facts["memory_bytes"] = str(plan.memory_bytes)
    return outcome, False


def verify_and_time(
    loaded: LoadedPlan, reference: Reference, terms: Terms, left_s: float
) -> Outcome:
    """Verify a loaded, filled plan, time it, and verify again; raises PlanFailure.

    In its turn a candidate runs and copies; whole outputs are compared once others may run.
    """
    with terms.turn():
        terms.say("running")
        ran = _run(loaded, reference, terms, time.monotonic() + min(left_s, terms.running_s))
    terms.say("judging")
    return _judged(loaded, ran, reference, terms)


def _run(loaded: LoadedPlan, reference: Reference, terms: Terms, deadline: float) -> _Ran:
    """The verified run, and if nothing is wrong with it so far, the timed ones."""
    loaded.poison()
    started = time.perf_counter()
    first = loaded.run()
    first_wall_ms = (time.perf_counter() - started) * 1e3
    output = loaded.read_output()
    ran = _Ran(first, first_wall_ms, [output], loaded.written_outside(), [])
    if ran.outside or not reference.glance(output, terms.tolerance):
        return ran
    if terms.protocol.is_cut_off(first.kernel_ns / 1e6):
        ran.note = "slow: the verified run only"
        return ran
    before_ns = terms.reference_ns() if terms.reference_ns else 0
    ran.trials = _timed_runs(loaded, terms.protocol, deadline, first)
    ran.reference_ns = (before_ns, terms.reference_ns() if terms.reference_ns else 0)
    if not ran.trials:
        ran.note = "the verified run only: no time was left for another"
    elif terms.back_to_back_ns is not None:
        usual_ns = round(median(run.kernel_ns for run in ran.trials))
        ran.back_to_back_ns = terms.back_to_back_ns(loaded, usual_ns)
    # A race may show only now: verify what the last run left as well.
    ran.outputs.append(loaded.read_output())
    ran.outside = loaded.written_outside()
    return ran


def _judged(loaded: LoadedPlan, ran: _Ran, reference: Reference, terms: Terms) -> Outcome:
    found = [reference.compare(output, terms.tolerance) for output in ran.outputs]
    for comparison in found:
        if comparison.wrong is not None:
            return comparison.wrong
    if ran.outside:
        return Wrong(NOT_FINITE_ERROR, (), ran.outside)
    first, runs = ran.first, ran.trials or [ran.first]
    kernels_ns = tuple(run.kernel_ns for run in runs)
    # Drivers such as PoCL's compile a kernel for its work-group size at the first launch:
    # the time of that launch that no kernel ran belongs to compiling.
    ran_ms = (first.prepared_ns + first.kernel_ns) / 1e6
    compile_ms = loaded.build_ms + max(0.0, ran.first_wall_ms - ran_ms)
    facts = {
        "build_ms": f"{loaded.build_ms:.3f}",
        "first_run_ms": f"{first.kernel_ns / 1e6:.6f}",
        "trials": str(len(runs)),
        "spread": f"{(max(kernels_ns) - min(kernels_ns)) / max(median(kernels_ns), 1):.4f}",
        # The norm of the difference over the norm of the reference.
        "relative_error": f"{max(c.relative_error for c in found):.6e}",
        **_launch_times(runs),
        **_stability(*ran.reference_ns),
        **loaded.kernel_facts(),
        **machine_state(),
    }
    if first.prepared_ns:
        facts["prepared_ms"] = f"{first.prepared_ns / 1e6:.6f}"
    if ran.back_to_back_ns is not None:
        facts["back_to_back_ms"] = f"{ran.back_to_back_ns / 1e6:.6f}"
    if ran.note:
        facts["trials.note"] = ran.note
    if reference.checked:
        facts["checked"] = reference.checked
    worst = max(comparison.max_relative_error for comparison in found)
    return Timed(kernels_ns, worst, compile_ms, facts, tuple(run.span_ns for run in runs))


def _launch_times(runs: Sequence[RunTimes]) -> dict[str, str]:
    """Medians of the launches one by one, where there are several."""
    if len(runs[0].launches_ns) < 2:
        return {}
    several = zip(*(run.launches_ns for run in runs), strict=True)
    return {
        launch_fact(one[0][0]): f"{median(time_ns for _, time_ns in one) / 1e6:.6f}"
        for one in several
    }


def _timed_runs(
    loaded: LoadedPlan, protocol: Protocol, deadline: float, first: RunTimes
) -> list[RunTimes]:
    """The trials; none if only the verified run fitted."""
    single = first
    if not protocol.is_slow(first.kernel_ns / 1e6):
        for _ in range(protocol.warmup):
            if _fits(single, deadline):
                single = loaded.run()
    trials: list[RunTimes] = []
    for _ in range(protocol.timed_runs(single.kernel_ns / 1e6)):
        if not _fits(trials[-1] if trials else single, deadline):
            break
        trials.append(loaded.run())
    return trials


def _fits(run: RunTimes, deadline: float) -> bool:
    return time.monotonic() + _RUN_MARGIN * run.span_ns / 1e9 < deadline


def _stability(before_ns: int, after_ns: int) -> dict[str, str]:
    if not before_ns or not after_ns:
        return {}
    ratio = max(before_ns, after_ns) / min(before_ns, after_ns)
    return {
        "reference_before_ns": str(before_ns),
        "reference_after_ns": str(after_ns),
        "stable": "yes" if ratio <= UNSTABLE_RATIO else "no",
    }
