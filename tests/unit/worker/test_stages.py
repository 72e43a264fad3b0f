"""Stages with their deadlines, turns, and pools, on a child that does what a plan's words say."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest

from mapper.errors import DeviceError, InputError
from mapper.measurement import Crash, Outcome, Timed, Timeout
from tests.unit.worker.plans import input_data, plan_of_source
from worker.measuring import Deadlines, MeasureRequest, MeasuringChild, Protocol
from worker.pool import Pool

CHILD = "tests.unit.worker.stage_child"
DATA = input_data()
ALL = "building waiting running judging"


@pytest.fixture
def turn(tmp_path: Path) -> Path:
    path = tmp_path / "turn"
    path.touch()
    return path


@pytest.fixture
def child(turn: Path) -> Iterator[MeasuringChild]:
    with MeasuringChild("none", child_module=CHILD, turn=turn) as made:
        made.upload_workload("w", {"a": DATA}, DATA)
        made.profile()
        yield made


@pytest.fixture
def pool() -> Iterator[Pool]:
    with Pool("none", 2, child_module=CHILD) as made:
        made.upload_workload("w", {"a": DATA}, DATA)
        made.profile()
        yield made


def measure(
    device: MeasuringChild | Pool,
    words: str,
    timeout_s: float = 30.0,
    deadlines: Deadlines | None = None,
) -> Outcome:
    return device.measure(
        plan_of_source(words), workload="w", timeout_s=timeout_s, deadlines=deadlines or Deadlines()
    )


def results(pool: Pool, *words: str, deadlines: Deadlines | None = None) -> dict[str, Outcome]:
    """Outcomes by the words."""
    for plan in words:
        pool.submit(
            MeasureRequest(plan_of_source(plan), "w", plan, deadlines=deadlines or Deadlines())
        )
    found: dict[str, Outcome] = {}
    while pool.waiting:
        one = pool.result(60.0)
        assert one is not None
        found[one[0]] = one[1]
    return found


@pytest.mark.parametrize("stage", ["building", "running", "judging"])
def test_a_stage_that_passes_its_deadline_is_ended(child: MeasuringChild, stage: str) -> None:
    words = f"{ALL[: ALL.index(stage)]}{stage} sleep"
    # All but this one may take their time.
    deadlines = Deadlines(**{f"{stage}_s": 0.4})
    started = time.monotonic()
    assert measure(child, words, deadlines=deadlines) == Timeout(0.4)
    assert time.monotonic() - started < 15
    assert isinstance(measure(child, ALL), Timed)


def test_stages_together_have_the_whole_timeout(child: MeasuringChild) -> None:
    words = "building nap waiting running nap judging nap"
    assert measure(child, words, timeout_s=1.2) == Timeout(1.2)
    assert isinstance(measure(child, words, deadlines=Deadlines(20, 60, 20, 20)), Timed)


@pytest.mark.parametrize(
    "words",
    [
        "running building",
        "building building",
        "building waiting waiting",
        "building running waiting",
        "building waiting running running",
        "nonsense",
    ],
)
def test_stages_come_in_their_order_and_once(child: MeasuringChild, words: str) -> None:
    pid = child.child_pid
    outcome = measure(child, words)
    assert isinstance(outcome, Crash) and "nonsense" in outcome.message
    # Who talks nonsense is not asked again.
    assert isinstance(measure(child, ALL), Timed) and child.child_pid != pid


def test_who_was_given_no_turn_cannot_wait_for_one() -> None:
    with MeasuringChild("none", child_module=CHILD) as child:
        child.upload_workload("w", {"a": DATA}, DATA)
        outcome = measure(child, "building waiting sleep", timeout_s=20)
        assert isinstance(outcome, Crash) and "waiting" in outcome.message
        assert isinstance(measure(child, "building running judging"), Timed)


def test_waiting_counts_for_no_deadline_of_the_candidate(child: MeasuringChild, turn: Path) -> None:
    short = Deadlines(building_s=20, running_s=20, judging_s=20)
    words = "building waiting turn running back judging"
    with turn.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(DeviceError, match="not free in time"):
            measure(child, words, deadlines=Deadlines(waiting_s=0.3))
    assert isinstance(measure(child, words, deadlines=short), Timed)
    waited = "building waiting nap nap nap running judging"
    assert isinstance(measure(child, waited, timeout_s=1.0), Timed)


def test_a_candidate_that_hangs_or_crashes_gives_the_turn_back_to_the_others(pool: Pool) -> None:
    hangs, crashes = "building waiting turn running sleep", "building waiting turn running die"
    fine = "building waiting turn running back judging"
    bound = Deadlines(running_s=1.0)
    found = results(pool, hangs, fine, crashes, fine + " ", deadlines=bound)
    assert found[hangs] == Timeout(1.0)
    crash = found[crashes]
    assert isinstance(crash, Crash) and crash.exit_code == -11
    assert isinstance(found[fine], Timed) and isinstance(found[fine + " "], Timed)


def test_what_one_builds_keeps_no_other_from_running(pool: Pool) -> None:
    pool.submit(MeasureRequest(plan_of_source("building sleep"), "w", "slow", timeout_s=60))
    for number in range(10):
        pool.submit(MeasureRequest(plan_of_source(ALL), "w", str(number)))
    found = [pool.result(30.0) for _ in range(10)]
    assert [one[0] for one in found if one is not None] == [str(number) for number in range(10)]
    assert pool.waiting == 1 and pool.drop_queued() == []


def test_who_waits_for_an_answer_keeps_it_when_others_are_dropped(pool: Pool) -> None:
    for number in range(20):
        pool.submit(MeasureRequest(plan_of_source("building nap"), "w", str(number)))
    assert isinstance(measure(pool, ALL), Timed)
    dropped = len(pool.drop_queued())
    assert pool.waiting == 20 - dropped


def test_children_that_are_lost_are_replaced_before_they_are_needed(pool: Pool) -> None:
    before = both(pool)
    results(pool, "building die", "building retire")
    assert both(pool) & before == set()


def both(pool: Pool) -> set[int]:
    """The children's process ids, once both are there."""
    end = time.monotonic() + 30
    while len(pids := set(pool.child_pids)) < 2:
        assert time.monotonic() < end
        time.sleep(0.02)
    return pids


def test_workloads_of_a_pool_are_on_disk_once(pool: Pool) -> None:
    folder = pool._workloads.folder
    arrays = len(list(folder.glob("*/expected.npy")))
    pool.upload_workload("another", {"a": DATA}, DATA)
    assert len(list(folder.glob("*/expected.npy"))) == arrays + 1
    pool.drop_workload("another")
    assert len(list(folder.glob("*/expected.npy"))) == arrays
    with pytest.raises(InputError, match="never uploaded"):
        pool.measure(plan_of_source(ALL), workload="another")


def test_what_waits_for_a_pool_that_closes_is_told() -> None:
    pool = Pool("none", 1, child_module=CHILD)
    with pool:
        pool.upload_workload("w", {"a": DATA}, DATA)
        pool.profile()
        for number in range(3):
            pool.submit(MeasureRequest(plan_of_source("building sleep"), "w", str(number)))
    outcomes: list[object] = []
    while pool.waiting:
        try:
            outcomes.append(pool.result(1.0))
        except DeviceError as error:
            outcomes.append(str(error))
    assert len(outcomes) == 3 and "is closed" in str(outcomes[-1])
    with pytest.raises(DeviceError, match="is closed"):
        pool.profile()


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan")])
def test_deadlines_are_positive(bad: float) -> None:
    with pytest.raises(InputError, match=r"deadlines\.running_s"):
        Deadlines(running_s=bad)
    assert Deadlines().of("building") == inf
    with pytest.raises(InputError, match="size"):
        Pool(size=0)


def test_agents_of_before_are_told_of_no_cutoff() -> None:
    assert "cutoff_ms" not in Protocol().to_json()
    cut = Protocol(cutoff_ms=1.5)
    assert Protocol(**cut.to_json()) == cut
    with pytest.raises(InputError, match="cutoff_ms"):
        Protocol(cutoff_ms=-1)
