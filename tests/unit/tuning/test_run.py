"""A tuning run stores at once, goes on where it stopped and measures nothing twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from db.store import Store
from mapper.errors import InputError, StoreError, UnsatisfiableError
from mapper.measurement import CompileError, Outcome, Timeout, Wrong
from nestmap.tuning.candidates import Draw
from nestmap.tuning.events import CandidateMeasured, CandidateRefused, Event, RunEnded, RunStarted
from nestmap.tuning.policy import TimeoutPolicy
from nestmap.tuning.progress import Point, pareto
from nestmap.tuning.run import Budget, TuningResult, tune
from nestmap.tuning.strategy import random_strategy
from tests.unit.tuning.fakes import ScriptedDevice, draw_once, timed, tiny_subjects
from worker.devices.null import NULL_PROFILE, NullDevice
from worker.devices.recorded import RecordedDevice

SUBJECTS = tiny_subjects("high-level", "partial")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store.sqlite3") as opened:
        yield opened


def run(
    device: NullDevice | RecordedDevice,
    store: Store,
    candidates: int | None = 10,
    seed: int = 7,
    **options: object,
) -> TuningResult:
    options.setdefault("draw", draw_once)
    options.setdefault("make", random_strategy(batch=3))
    return tune(SUBJECTS, device, store, seed=seed, budget=Budget(candidates), **options)  # pyright: ignore[reportArgumentType]


def interrupt_at(number: int) -> ScriptedDevice:
    def answer(count: int, candidate: str) -> Outcome | None:
        if count == number:
            raise KeyboardInterrupt
        return None

    return ScriptedDevice(answer)


def test_front_is_measured_and_can_be_built_again(store: Store):
    device = ScriptedDevice()
    events: list[Event] = []
    result = run(device, store, listener=events.append)
    assert len(set(device.measured)) == 10
    assert result.reason == "candidates"
    assert result.state.outcomes["timed"] == result.state.tried == 10
    assert [entry.candidate for entry in result.front] == [
        point.candidate for point in pareto([
            Point(m.outcome.time_ms, m.memory_bytes, m.candidate_id, 0)  # pyright: ignore[reportAttributeAccessIssue]
            for study in store.studies()
            for m in store.measurements(study)
        ])
    ]  # fmt: skip
    for entry in result.front:
        assert entry.plan.memory_bytes == entry.memory_bytes
        assert entry.plan.extra_bytes == entry.extra_bytes
    assert isinstance(events[0], RunStarted) and isinstance(events[-1], RunEnded)
    assert [e.candidate for e in events if isinstance(e, CandidateMeasured)] == device.measured
    assert device.uploads == 1, "both variants of a layer have one reference"


def test_subjects_take_turns(store: Store):
    run(ScriptedDevice(), store, candidates=6)
    counts = [len(store.measurements(study)) for study in store.studies()]
    assert counts == [3, 3]


def test_order_comes_from_the_seed(tmp_path: Path):
    orders: list[list[str]] = []
    for index, seed in enumerate((7, 7, 8)):
        with Store.open(tmp_path / f"{index}.sqlite3") as fresh:
            device = ScriptedDevice()
            run(device, fresh, seed=seed)
            orders.append(device.measured)
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]


def test_finished_run_measures_nothing_again(store: Store):
    first = run(ScriptedDevice(), store)
    again = ScriptedDevice()
    second = run(again, store)
    assert again.measured == []
    assert [e.candidate for e in second.front] == [e.candidate for e in first.front]
    assert second.state.tried == 10


def test_interrupted_run_keeps_results_and_resumes(store: Store):
    first = interrupt_at(4)
    interrupted = run(first, store)
    assert interrupted.reason == "interrupted"
    assert interrupted.state.tried == 4
    second = ScriptedDevice()
    events: list[Event] = []
    result = run(second, store, listener=events.append)
    assert isinstance(events[0], RunStarted) and events[0].stored == 4
    assert len(second.measured) == 6
    assert not set(first.measured) & set(second.measured)
    assert result.state.tried == 10


class _WithLeftover(ScriptedDevice):
    """A device on which an earlier run has left a candidate that it did not wait for."""

    left = True

    def result(self, timeout_s: float) -> tuple[str, Outcome] | None:
        if self.left:
            self.left = False
            return "0" * 64, timed(1e-3)
        return super().result(timeout_s)


def test_what_an_earlier_run_did_not_wait_for_is_no_candidate_of_this_one(store: Store):
    result = run(_WithLeftover(), store)
    assert result.state.tried == 10
    assert all(m.candidate_id != "0" * 64 for s in store.studies() for m in store.measurements(s))


def test_another_seed_is_another_study(store: Store):
    run(ScriptedDevice(), store)
    other = ScriptedDevice()
    run(other, store, seed=8)
    assert len(other.measured) == 10


def test_recorded_device_replays_a_run(store: Store, tmp_path: Path):
    result = run(ScriptedDevice(), store)
    outcomes = {
        m.candidate_id: m.outcome for study in store.studies() for m in store.measurements(study)
    }
    with Store.open(tmp_path / "replay.sqlite3") as fresh:
        replay = run(RecordedDevice(outcomes, NULL_PROFILE), fresh)
    assert [(e.candidate, e.time_ms) for e in replay.front] == [
        (e.candidate, e.time_ms) for e in result.front
    ]


def test_failures_are_stored_and_never_on_the_front(store: Store):
    bad = (Wrong(1.0, (0,), "off"), CompileError("no"), Timeout(1.0))

    def answer(number: int, candidate: str) -> Outcome | None:
        return bad[number] if number < len(bad) else timed(5.0)

    result = run(ScriptedDevice(answer), store, candidates=5)
    assert {k: v for k, v in result.state.outcomes.items() if v} == {
        "wrong": 1,
        "compile-error": 1,
        "timeout": 1,
        "timed": 2,
    }
    assert all(entry.time_ms == 5.0 for entry in result.front)


def test_nothing_right_leaves_an_empty_front(store: Store):
    result = run(ScriptedDevice(lambda number, candidate: CompileError("no")), store)
    assert result.front == () and result.state.best_ms is None


def test_timeouts_follow_the_best(store: Store):
    policy = TimeoutPolicy(least_s=1.0, most_s=30.0, factor=10.0)
    times = (timed(9000.0), timed(500.0), timed(10.0), timed(10.0))
    device = ScriptedDevice(lambda number, candidate: times[number])
    run(device, store, candidates=4, timeouts=policy)
    assert device.timeouts_s == [30.0, 30.0, 5.0, 1.0]


def test_candidate_cut_off_by_the_end_is_not_stored(store: Store):
    now = [0.0]

    def answer(number: int, candidate: str) -> Outcome:
        now[0] += 4.0
        return timed(1000.0) if number == 0 else Timeout(2.0)

    device = ScriptedDevice(answer)
    result = tune(
        SUBJECTS, device, store, budget=Budget(seconds=6.0), draw=draw_once, clock=lambda: now[0]
    )
    assert device.timeouts_s == [6.0, 2.0]
    assert result.reason == "seconds"
    assert result.state.outcomes["timeout"] == 0


def test_assignment_without_a_kernel_is_told_and_skipped(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    from nestmap.tuning import strategy

    original, calls = strategy.candidate_of, []

    def refuse_first(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) == 1:
            raise InputError("no barrier can mend this")
        return original(*arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(strategy, "candidate_of", refuse_first)
    events: list[Event] = []
    result = run(ScriptedDevice(), store, listener=events.append)
    assert result.state.tried == 10
    assert len(result.refused) == 1 and "no barrier" in result.refused[0]
    assert sum(isinstance(event, CandidateRefused) for event in events) == 1


def test_space_without_candidates_ends_the_run(store: Store):
    def draw(space: object, count: int, seed: int) -> list[dict]:
        raise UnsatisfiableError("no valid assignment")

    result = run(ScriptedDevice(), store, draw=draw)
    assert result.reason == "exhausted"
    assert result.state.tried == 0 and len(result.refused) == 2


def test_small_space_is_exhausted_also_after_a_resume(store: Store):
    space_of: list[int] = []

    def draw_few(space: object, count: int, seed: int) -> list:
        few = draw_once(space, 9, 1)  # pyright: ignore[reportArgumentType]
        space_of.append(len(few))
        return few

    few: Draw = draw_few
    subjects = tiny_subjects("partial")
    interrupted = interrupt_at(7)
    tune(subjects, interrupted, store, draw=few, make=random_strategy())
    rest = ScriptedDevice()
    result = tune(subjects, rest, store, draw=few, make=random_strategy())
    assert result.reason == "exhausted"
    assert set(interrupted.measured) | set(rest.measured) == {
        m.candidate_id for study in store.studies() for m in store.measurements(study)
    }
    assert result.state.tried == 9


def test_store_that_fails_ends_the_run(store: Store, monkeypatch: pytest.MonkeyPatch):
    def refuse(*arguments: object, **named: object) -> bool:
        raise StoreError("the disk is full")

    monkeypatch.setattr(store, "add_measurement", refuse)
    with pytest.raises(StoreError, match="disk is full"):
        run(ScriptedDevice(), store)


@pytest.mark.parametrize("budget", [{"candidates": 0}, {"seconds": 0.0}, {"seconds": -1.0}])
def test_empty_budget_is_refused(budget: dict[str, int]):
    with pytest.raises(InputError, match="positive"):
        Budget(**budget)


def test_nothing_to_tune(store: Store):
    with pytest.raises(InputError, match="nothing to tune"):
        tune((), NullDevice(), store)
