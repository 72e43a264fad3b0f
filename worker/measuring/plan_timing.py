"""The measurement of one candidate inside the child: verify, warm up, time, verify again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import numpy as np

from mapper.host_plan import HostPlan
from mapper.measurement import Outcome, Timed, Wrong
from worker.devices.facts import machine_state
from worker.measuring.comparison import NOT_FINITE_ERROR, compare
from worker.measuring.driver_errors import PlanFailure
from worker.measuring.loaded_plan import LoadedPlan, RunTimes, Session
from worker.measuring.settings import Protocol, Tolerance

#: A reference kernel whose time changed by more than this factor between before and after
#: says that the machine's speed changed. A quarter is well above the jitter of its best of 5.
UNSTABLE_RATIO = 1.25
#: What a next run may take beyond the last one before we would rather not start it.
_RUN_MARGIN = 1.5

BackToBackNs = Callable[[LoadedPlan, int], float | None]


def measure_plan(
    session: Session,
    plan: HostPlan,
    inputs: Mapping[str, np.ndarray[Any, Any]],
    expected: np.ndarray[Any, Any],
    *,
    tolerance: Tolerance,
    protocol: Protocol,
    deadline: float,
    reference_ns: Callable[[], int] | None = None,
    back_to_back_ns: BackToBackNs | None = None,
) -> tuple[Outcome, bool]:
    """Measure ``plan``; also say whether the process should be retired.

    ``deadline`` is on the monotonic clock: no run is started that would probably pass it,
    so that a slow candidate that was verified in time is timed and not lost.
    ``reference_ns`` times a known kernel around the timed runs, ``back_to_back_ns`` runs of a plan
    that takes so many ns by its events without these (None where that is not worth it).
    """
    try:
        with LoadedPlan(session, plan, with_guards=True) as loaded:
            loaded.poison()
            loaded.fill_inputs(inputs)
            outcome = verify_and_time(
                loaded,
                expected,
                tolerance,
                protocol,
                deadline,
                reference_ns,
                back_to_back_ns,
            )
    except PlanFailure as failure:
        return failure.outcome, failure.retire
    if isinstance(outcome, Timed):
        outcome.facts["memory_bytes"] = str(plan.memory_bytes)
    return outcome, False


def verify_and_time(
    loaded: LoadedPlan,
    expected: np.ndarray[Any, Any],
    tolerance: Tolerance,
    protocol: Protocol,
    deadline: float,
    reference_ns: Callable[[], int] | None,
    back_to_back_ns: BackToBackNs | None = None,
) -> Outcome:
    """Verify a loaded, filled plan, time it, and verify again; raises PlanFailure."""
    started = time.perf_counter()
    first = loaded.run()
    first_wall_ms = (time.perf_counter() - started) * 1e3
    verified = compare(loaded.read_output(), expected, tolerance)
    if verified.wrong is not None:
        return verified.wrong
    if outside := loaded.written_outside():
        return Wrong(NOT_FINITE_ERROR, (), outside)

    before_ns = reference_ns() if reference_ns else 0
    trials = _timed_runs(loaded, protocol, deadline, first)
    after_ns = reference_ns() if reference_ns else 0
    runs = trials or [first]
    kernels_ns = tuple(run.kernel_ns for run in runs)
    quick_ns = None
    if back_to_back_ns is not None and trials:
        quick_ns = back_to_back_ns(loaded, round(median(kernels_ns)))

    # A race may show only now: verify what the last run left as well.
    verified_late = compare(loaded.read_output(), expected, tolerance)
    if verified_late.wrong is not None:
        return verified_late.wrong
    if outside := loaded.written_outside():
        return Wrong(NOT_FINITE_ERROR, (), outside)
    # Drivers such as PoCL's compile a kernel for its work-group size at the first launch:
    # the time of that launch that no kernel ran belongs to compiling.
    ran_ms = (first.prepared_ns + first.kernel_ns) / 1e6
    compile_ms = loaded.build_ms + max(0.0, first_wall_ms - ran_ms)
    facts = {
        "build_ms": f"{loaded.build_ms:.3f}",
        "first_run_ms": f"{first.kernel_ns / 1e6:.6f}",
        "trials": str(len(runs)),
        "spread": f"{(max(kernels_ns) - min(kernels_ns)) / max(median(kernels_ns), 1):.4f}",
        **_stability(before_ns, after_ns),
        **loaded.kernel_facts(),
        **machine_state(),
    }
    if first.prepared_ns:
        facts["prepared_ms"] = f"{first.prepared_ns / 1e6:.6f}"
    if quick_ns is not None:
        facts["back_to_back_ms"] = f"{quick_ns / 1e6:.6f}"
    if not trials:
        facts["trials.note"] = "the verified run only: no time was left for another"
    worst = max(verified.max_relative_error, verified_late.max_relative_error)
    return Timed(kernels_ns, worst, compile_ms, facts, tuple(run.span_ns for run in runs))


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
