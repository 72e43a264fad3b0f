"""How many runs a candidate gets, on a plan that only pretends to run."""

from __future__ import annotations

import math
from typing import cast

import numpy as np
import pytest

from mapper.measurement import Timed, Wrong, launch_ms
from worker.measuring.comparison import Reference
from worker.measuring.loaded_plan import LoadedPlan, RunTimes
from worker.measuring.plan_timing import UNSTABLE_RATIO, Terms, verify_and_time
from worker.measuring.settings import Protocol, Tolerance

RIGHT = np.ones(4, np.float32)
#: Between the launches of a run.
GAPS_NS = 1000


class PretendedPlan:
    """Claims ``run_ns`` for every run and gives ``outputs`` one after the other;
    from the run ``outside_from`` on something is written outside of its arrays."""

    build_ms = 1.0
    launches = 2

    def __init__(
        self, run_ns: int, outputs: tuple[np.ndarray, ...] = (RIGHT,), outside_from: int = 99
    ) -> None:
        self.run_ns = run_ns
        self.outputs = list(outputs)
        self.outside_from = outside_from
        self.runs = 0

    def poison(self) -> None:
        pass

    def run(self) -> RunTimes:
        self.runs += 1
        half = self.run_ns // 2
        launches = (("k_a", half + self.runs), ("k_b", half - self.runs))[: self.launches]
        return RunTimes(self.run_ns, self.run_ns + GAPS_NS, launches_ns=launches)

    def read_output(self) -> np.ndarray:
        return self.outputs.pop(0) if len(self.outputs) > 1 else self.outputs[0]

    def written_outside(self) -> str:
        return "wrote behind its array" if self.runs >= self.outside_from else ""

    def kernel_facts(self) -> dict[str, str]:
        return {}


def timed(
    plan: PretendedPlan,
    protocol: Protocol,
    *,
    left_s: float = 1000.0,
    running_s: float = math.inf,
    reference: tuple[int, ...] = (),
    back_to_back_ns: float | None = None,
) -> Timed | Wrong:
    times = list(reference)
    terms = Terms(
        Tolerance(),
        protocol,
        timeout_s=left_s,
        running_s=running_s,
        reference_ns=(lambda: times.pop(0)) if times else None,
        back_to_back_ns=lambda plan, by_events_ns: back_to_back_ns,
    )
    outcome = verify_and_time(cast(LoadedPlan, plan), Reference(RIGHT), terms, left_s)
    assert isinstance(outcome, Timed | Wrong)
    return outcome


def test_fast_plan_is_verified_warmed_up_and_repeated() -> None:
    plan = PretendedPlan(10_000_000)
    outcome = timed(plan, Protocol(warmup=2, repetitions=5))
    assert isinstance(outcome, Timed)
    assert outcome.trials_ns == (10_000_000,) * 5
    assert outcome.spans_ns == (10_001_000,) * 5
    assert (outcome.kernel_ms, outcome.time_ms, outcome.span_ms) == (10.0, 10.001, 10.001)
    assert plan.runs == 1 + 2 + 5


def test_a_time_without_events_is_a_fact_where_it_was_worth_measuring() -> None:
    known = timed(PretendedPlan(5_000), Protocol(), back_to_back_ns=1_250.0)
    assert isinstance(known, Timed) and known.facts["back_to_back_ms"] == "0.001250"
    unknown = timed(PretendedPlan(5_000), Protocol())
    assert isinstance(unknown, Timed) and "back_to_back_ms" not in unknown.facts


def test_slow_plan_gets_no_warm_up_and_what_fits_the_budget() -> None:
    plan = PretendedPlan(600_000_000)
    outcome = timed(plan, Protocol(slow_after_ms=200, budget_ms=2000))
    assert isinstance(outcome, Timed)
    assert len(outcome.trials_ns) == 3
    assert plan.runs == 1 + 3


def test_plan_that_took_most_of_its_time_is_timed_by_the_verified_run() -> None:
    plan = PretendedPlan(40_000_000_000)
    outcome = timed(plan, Protocol(), left_s=30)
    assert isinstance(outcome, Timed)
    assert outcome.trials_ns == (40_000_000_000,)
    assert outcome.spans_ns == (40_000_001_000,)
    assert plan.runs == 1
    assert "verified run only" in outcome.facts["trials.note"]


def test_a_bound_of_the_runs_is_as_good_as_one_of_all() -> None:
    plan = PretendedPlan(40_000_000_000)
    outcome = timed(plan, Protocol(), running_s=30)
    assert isinstance(outcome, Timed) and plan.runs == 1


@pytest.mark.parametrize(("cutoff_ms", "runs"), [(0.0, 4), (49.0, 1), (50.0, 4)])
def test_a_plan_beyond_the_cutoff_is_verified_and_not_repeated(cutoff_ms: float, runs: int) -> None:
    plan = PretendedPlan(50_000_000)
    outcome = timed(plan, Protocol(warmup=0, repetitions=3, cutoff_ms=cutoff_ms))
    assert isinstance(outcome, Timed) and plan.runs == runs
    assert outcome.trials_ns == (50_000_000,) * max(1, runs - 1)
    note = outcome.facts.get("trials.note", "")
    assert ("slow: the verified run only" in note) == (runs == 1)


def test_a_wrong_plan_is_not_timed() -> None:
    plan = PretendedPlan(1_000_000, (2 * RIGHT,))
    assert isinstance(timed(plan, Protocol()), Wrong)
    assert plan.runs == 1


def test_output_that_goes_wrong_during_the_timed_runs_is_wrong() -> None:
    outcome = timed(PretendedPlan(1_000_000, (RIGHT, 2 * RIGHT)), Protocol())
    assert isinstance(outcome, Wrong)


@pytest.mark.parametrize("run", [1, 2])
def test_what_any_run_wrote_outside_is_wrong_whatever_its_result(run: int) -> None:
    plan = PretendedPlan(1_000_000, outside_from=run)
    outcome = timed(plan, Protocol())
    assert isinstance(outcome, Wrong) and "behind its array" in outcome.message
    # What the verified run wrote is enough: no other is started.
    assert (plan.runs == 1) == (run == 1)


def test_reference_kernel_tells_unstable_machines() -> None:
    plan = PretendedPlan(1_000_000)
    steady = timed(plan, Protocol(), reference=(1000, 1100))
    assert isinstance(steady, Timed) and steady.facts["stable"] == "yes"
    unsteady = timed(plan, Protocol(), reference=(1000, int(1001 * UNSTABLE_RATIO)))
    assert isinstance(unsteady, Timed) and unsteady.facts["stable"] == "no"


def test_launches_are_timed_one_by_one_where_there_are_several() -> None:
    plan = PretendedPlan(2_000_000)
    outcome = timed(plan, Protocol(warmup=0, repetitions=3))
    assert isinstance(outcome, Timed)
    assert launch_ms(outcome, "k_a") == pytest.approx(1.0, abs=1e-4)
    assert launch_ms(outcome, "k_b") == pytest.approx(1.0, abs=1e-4)
    assert launch_ms(outcome, "k_c") is None
    plan.launches = 1
    alone = timed(plan, Protocol(warmup=0, repetitions=3))
    assert isinstance(alone, Timed) and launch_ms(alone, "k_a") is None
