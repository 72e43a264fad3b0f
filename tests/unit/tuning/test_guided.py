"""The guided strategy in a run: it keeps the promises of a run, and it learns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median

import pytest

from db.store import Store
from mapper.host_plan import HostPlan
from mapper.measurement import CompileError, Outcome
from mapper.search.goal import Fastest, FastestWithin
from mapper.search.model_guided import Settings
from nestmap.tuning.events import CandidateMeasured, Event
from nestmap.tuning.guided import GuidedStrategy
from nestmap.tuning.run import Budget, tune
from nestmap.tuning.strategy import random_strategy
from tests.unit.tuning.fakes import ScriptedDevice, timed, tiny_subjects

SUBJECTS = tiny_subjects("high-level", "partial")
#: Less to choose among than by default: generating kernels is most of these tests' time.
QUICK = Settings(guessed_start=5, growth=5)
quick = partial(GuidedStrategy, settings=QUICK)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store.sqlite3") as opened:
        yield opened


class PlanDevice(ScriptedDevice):
    """Work-groups of 16 and few private bytes are fast: a thing to learn."""

    def __init__(self) -> None:
        super().__init__()
        self.times_ms: list[float] = []

    def measure(self, plan: HostPlan, *, candidate: str = "", **options: object) -> Outcome:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().measure(plan, candidate=candidate, **options)
        self.times_ms.append(self.time_ms(plan))
        return timed(self.times_ms[-1])

    @staticmethod
    def time_ms(plan: HostPlan) -> float:
        """What the device takes for a plan."""
        time_ms = 0.0
        for launch in plan.launches:
            x, y, z = launch.local_size
            time_ms += 1.0 + abs(x * y * z - 16) / 4 + launch.private_bytes / 100
        return time_ms


def test_no_candidate_is_measured_twice_and_one_seed_gives_one_order(
    store: Store, tmp_path: Path
) -> None:
    first, second = ScriptedDevice(), ScriptedDevice()
    tune(SUBJECTS, first, store, seed=3, budget=Budget(14), make=quick)
    with Store.open(tmp_path / "other.sqlite3") as other:
        tune(SUBJECTS, second, other, seed=3, budget=Budget(14), make=quick)
    assert len(set(first.measured)) == 14
    assert first.measured == second.measured


def test_a_run_goes_on_with_what_is_stored(store: Store) -> None:
    device = ScriptedDevice()
    tune(SUBJECTS, device, store, seed=3, budget=Budget(8), make=quick)
    result = tune(SUBJECTS, device, store, seed=3, budget=Budget(12), make=quick)
    assert len(device.measured) == len(set(device.measured)) == 12
    assert result.state.tried == 12
    tune(SUBJECTS, device, store, seed=3, budget=Budget(12), make=quick)
    assert len(device.measured) == 12


def test_once_it_has_learned_its_candidates_are_faster_than_random_ones(tmp_path: Path) -> None:
    medians: dict[str, float] = {}
    makes = {
        "guided": partial(
            GuidedStrategy, goal=Fastest(), settings=Settings(guessed_start=8, growth=10)
        ),
        "random": random_strategy(),
    }
    for name, make in makes.items():
        with Store.open(tmp_path / f"{name}.sqlite3") as store:
            device = PlanDevice()
            tune(SUBJECTS, device, store, seed=1, budget=Budget(36), make=make)
        medians[name] = median(device.times_ms[18:])
    assert medians["guided"] < 0.7 * medians["random"]


def test_failures_do_not_end_it(store: Store) -> None:
    device = ScriptedDevice(lambda number, candidate: CompileError("no"))
    result = tune(SUBJECTS, device, store, seed=0, budget=Budget(9), make=quick)
    assert result.state.outcomes["compile-error"] == 9
    assert result.winner is None


def test_a_bound_on_memory_is_kept(store: Store) -> None:
    unbounded = tune(SUBJECTS, ScriptedDevice(), store, seed=5, budget=Budget(8), make=quick)
    least = min(entry.memory_bytes for entry in unbounded.front)
    make = partial(quick, goal=FastestWithin(least))
    bounded = tune(SUBJECTS, ScriptedDevice(), store, seed=6, budget=Budget(8), make=make)
    assert {entry.memory_bytes for entry in bounded.front} == {least}


def test_states_say_volume_and_time_left(store: Store) -> None:
    events: list[Event] = []
    ticks = iter(range(10_000))
    tune(
        SUBJECTS,
        ScriptedDevice(),
        store,
        budget=Budget(8, 9000.0),
        listener=events.append,
        make=quick,
        clock=lambda: float(next(ticks)),
    )
    states = [event.state for event in events if isinstance(event, CandidateMeasured)]
    assert all(0 < state.volume <= 1 for state in states)
    left = [state.left_s for state in states]
    assert left[-1] == 0.0
    assert all(value is not None and value < 9000 for value in left)


def test_the_final_decides_who_wins(store: Store) -> None:
    again: dict[str, int] = {}

    def answer(number: int, candidate: str) -> Outcome:
        again[candidate] = again.get(candidate, 0) + 1
        # The luckiest of the first round is slow whenever it is measured again.
        return timed(0.9 if number == 2 else 2.0 if again[candidate] > 1 and lucky() == candidate
                     else 1.0 + 0.001 * (number % 5))  # fmt: skip

    device = ScriptedDevice(answer)

    def lucky() -> str:
        return device.measured[2]

    result = tune(SUBJECTS, device, store, seed=2, budget=Budget(8), finalists=3, make=quick)
    assert result.front[0].candidate == lucky()
    assert len(result.finals) == 3
    assert result.winner is not None
    assert result.winner is result.finals[0].entry
    assert result.winner.candidate != lucky()
