"""Processes that measure side by side: whatever a candidate does, the others go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mapper.errors import DeviceError
from mapper.measurement import Crash, Timed, Timeout
from nestmap.tuning.measuring.candidate_child import Repetition
from nestmap.tuning.measuring.pool import Deadlines, Pool
from nestmap.tuning.reference import Workload
from nestmap.tuning.trial import Trial
from tests.unit.tuning import fake_child as does
from tests.unit.tuning.records import SMALL
from worker.measuring.settings import Tolerance

CHILD = "tests.unit.tuning.fake_child"
NO_WORKLOAD = Workload({}, np.ones(1), Tolerance())


@pytest.fixture
def pool() -> Iterator[Pool]:
    with Pool("null", 2, Deadlines(building=3.0, running=2.0), CHILD) as opened:
        opened.begin(SMALL, "direct", NO_WORKLOAD)
        yield opened


def measure(pool: Pool, *wishes: int) -> list[Trial]:
    for wish in wishes:
        pool.submit({"mapping": {"1": wish}}, Repetition())
    found: list[Trial] = []
    while len(found) < len(wishes):
        trial = pool.result(60.0)
        assert trial is not None
        found.append(trial)
    return sorted(found, key=lambda trial: wishes.index(trial.choices["mapping"]["1"]))


def test_a_kernel_that_hangs_gives_the_device_back_to_the_others(pool: Pool):
    hung, fine, also_fine = measure(pool, does.HANGS_WITH_THE_DEVICE, does.FINE, does.FINE)
    assert isinstance(hung.outcome, Timeout)
    assert isinstance(fine.outcome, Timed) and isinstance(also_fine.outcome, Timed)
    assert pool.waiting == 0


def test_a_build_that_hangs_is_ended(pool: Pool):
    hung, fine = measure(pool, does.HANGS_BUILDING, does.FINE)
    assert isinstance(hung.outcome, Timeout)
    assert isinstance(fine.outcome, Timed)


def test_a_kernel_that_crashes_takes_only_its_own_process_along(pool: Pool):
    crashed, fine = measure(pool, does.CRASHES, does.FINE)
    assert isinstance(crashed.outcome, Crash)
    assert crashed.outcome.exit_code == -11
    assert "running" in crashed.outcome.message
    assert isinstance(fine.outcome, Timed)
    assert all(isinstance(t.outcome, Timed) for t in measure(pool, does.FINE, does.FINE))


def test_nonsense_from_a_process_is_a_crash(pool: Pool):
    (trial,) = measure(pool, does.TALKS_NONSENSE)
    assert isinstance(trial.outcome, Crash)


def test_a_process_that_asks_for_it_is_replaced():
    with Pool("null", 1, child=CHILD) as pool:
        pool.begin(SMALL, "direct", NO_WORKLOAD)
        processes: list[int] = []
        for wish in (does.FINE, does.RETIRES, does.FINE):
            (trial,) = measure(pool, wish)
            assert isinstance(trial.outcome, Timed)
            processes.append(trial.outcome.trials_ns[0])
        assert processes[0] == processes[1] != processes[2]


def test_what_is_only_queued_can_be_dropped(pool: Pool):
    for _ in range(20):
        pool.submit({"mapping": {"1": does.FINE}}, Repetition())
    pool.drop_queued()
    while pool.waiting:
        assert pool.result(60.0) is not None
    assert pool.result(0.1) is None
    for _ in range(20):
        pool.submit({"mapping": {"1": does.FINE}}, Repetition())
    pool.drain()
    assert not pool.waiting and pool.result(0.1) is None


def test_layers_can_take_turns_and_leave_nothing_on_disk_once_they_are_forgotten(pool: Pool):
    first = pool.begin(SMALL, "direct", NO_WORKLOAD)
    second = pool.begin(SMALL, "partial", NO_WORKLOAD)
    for number, variant in ((first, "direct"), (second, "partial"), (first, "direct")):
        pool.resume(number)
        assert {trial.source_hash for trial in measure(pool, *[does.FINE] * 3)} == {f"of {variant}"}
    tasks = [Path(t.message["workload"]) for t in pool.tasks]
    assert len(tasks) == 3 and all(folder.is_dir() for folder in tasks)
    pool.forget()
    assert not any(folder.exists() for folder in tasks)


def test_a_device_that_is_not_there_is_an_error():
    with Pool("absent", 1, child=CHILD) as pool, pytest.raises(DeviceError, match="is absent"):
        pool.device()


def test_a_pool_says_which_device_it_has(pool: Pool):
    state = pool.device()
    assert state.facts == {"device.name": "fake"}
    assert state.profile is not None and state.profile.name == "null"
