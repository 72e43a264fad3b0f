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
from worker.measuring.loaded_plan import LoadedPlan, Session
from worker.measuring.settings import Protocol, Tolerance

#: A reference kernel whose time changed by more than this factor between before and after
#: says that the machine's speed changed. A quarter is well above the jitter of its best of 5.
UNSTABLE_RATIO = 1.25
#: What a next run may take beyond the last one before we would rather not start it.
_RUN_MARGIN = 1.5


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
) -> tuple[Outcome, bool]:
    """Measure ``plan``; also say whether the process should be retired.

    ``deadline`` is on the monotonic clock: no run is started that would probably pass it,
    so that a slow candidate that was verified in time is timed and not lost.
    ``reference_ns`` times a known kernel around the timed runs.
    """
    try:
        with LoadedPlan(session, plan, with_guards=True) as loaded:
            loaded.poison()
            loaded.fill_inputs(inputs)
            outcome = verify_and_time(loaded, expected, tolerance, protocol, deadline, reference_ns)
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
) -> Outcome:
    """Verify a loaded, filled plan, time it, and verify again; raises PlanFailure."""
    started = time.perf_counter()
    first_ns = loaded.run()
    first_wall_ms = (time.perf_counter() - started) * 1e3
    verified = compare(loaded.read_output(), expected, tolerance)
    if verified.wrong is not None:
        return verified.wrong
    if outside := loaded.written_outside():
        return Wrong(NOT_FINITE_ERROR, (), outside)

    before_ns = reference_ns() if reference_ns else 0
    trials, last_ns = _timed_runs(loaded, protocol, deadline, first_ns)
    after_ns = reference_ns() if reference_ns else 0

    # A race may show only now: verify what the last run left as well.
    verified_late = compare(loaded.read_output(), expected, tolerance)
    if verified_late.wrong is not None:
        return verified_late.wrong
    if outside := loaded.written_outside():
        return Wrong(NOT_FINITE_ERROR, (), outside)
    # Drivers such as PoCL's compile a kernel for its work-group size at the first launch:
    # the time of that launch that no kernel ran belongs to compiling.
    compile_ms = loaded.build_ms + max(0.0, first_wall_ms - first_ns / 1e6)
    facts = {
        "build_ms": f"{loaded.build_ms:.3f}",
        "first_run_ms": f"{first_ns / 1e6:.6f}",
        "trials": str(len(trials)),
        "spread": f"{(max(trials) - min(trials)) / max(median(trials), 1):.4f}",
        **_stability(before_ns, after_ns),
        **loaded.kernel_facts(),
        **machine_state(),
    }
    if last_ns is None:
        facts["trials.note"] = "the verified run only: no time was left for another"
    worst = max(verified.max_relative_error, verified_late.max_relative_error)
    return Timed(tuple(trials), worst, compile_ms, facts)


def _timed_runs(
    loaded: LoadedPlan, protocol: Protocol, deadline: float, first_ns: int
) -> tuple[list[int], int | None]:
    """The trials in ns, and the last of them or None if only the verified run fitted."""
    single_ns = first_ns
    if not protocol.is_slow(first_ns / 1e6):
        for _ in range(protocol.warmup):
            if _fits(single_ns, deadline):
                single_ns = loaded.run()
    trials: list[int] = []
    for _ in range(protocol.timed_runs(single_ns / 1e6)):
        if not _fits(trials[-1] if trials else single_ns, deadline):
            break
        trials.append(loaded.run())
    return (trials, trials[-1]) if trials else ([first_ns], None)


def _fits(run_ns: int, deadline: float) -> bool:
    return time.monotonic() + _RUN_MARGIN * run_ns / 1e9 < deadline


def _stability(before_ns: int, after_ns: int) -> dict[str, str]:
    if not before_ns or not after_ns:
        return {}
    ratio = max(before_ns, after_ns) / min(before_ns, after_ns)
    return {
        "reference_before_ns": str(before_ns),
        "reference_after_ns": str(after_ns),
        "stable": "yes" if ratio <= UNSTABLE_RATIO else "no",
    }
