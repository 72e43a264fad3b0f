"""Intervals, outliers, drift and finals."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from statistics import median

import pytest

from mapper.measurement import CompileError, Outcome, Timed
from nestmap.tuning.finalists import play_final
from nestmap.tuning.statistics import (
    drifts,
    median_interval,
    outliers,
    relative_error,
    stable,
)


def one_by_one(
    measure: Callable[[str], Outcome],
) -> Callable[[Sequence[str]], list[Outcome | None]]:
    return lambda entries: [measure(entry) for entry in entries]


def test_intervals_hold_the_true_median_as_often_as_they_say() -> None:
    generator = random.Random(1)
    held = 0
    for _ in range(1000):
        found = median_interval([generator.lognormvariate(0, 1) for _ in range(15)])
        assert found.confidence >= 0.95
        held += found.low <= 1.0 <= found.high
    assert held >= 930


def test_few_trials_say_how_unsure_they_are() -> None:
    found = median_interval([3.0, 1.0, 2.0])
    assert (found.low, found.median, found.high) == (1.0, 2.0, 3.0)
    assert found.confidence == pytest.approx(0.75)
    assert median_interval([1.0]).confidence == 0.0
    with pytest.raises(ValueError, match="no trials"):
        median_interval([])


def test_outliers_are_far_from_the_rest() -> None:
    assert outliers([10.0, 10.1, 9.9, 10.0, 14.0, 10.05]) == (4,)
    assert outliers([10.0, 10.0, 10.0, 10.0, 10.001]) == ()
    assert outliers([1.0, 9.0]) == ()


def test_error_of_the_median_shrinks_with_trials_and_ignores_outliers() -> None:
    generator = random.Random(2)
    many = [100 + generator.gauss(0, 2) for _ in range(400)]
    assert relative_error(many) < relative_error(many[:25])
    assert relative_error(many) == pytest.approx(1.2533 * 0.02 / 20, rel=0.2)
    assert relative_error([*many[:25], 1e6]) == pytest.approx(relative_error(many[:25]), rel=0.3)
    assert relative_error([5.0]) == 0.0


def test_drift_is_found_and_noise_is_not() -> None:
    generator = random.Random(3)
    noise = [[generator.gauss(10, 1) for _ in range(20)] for _ in range(300)]
    assert sum(map(drifts, noise)) <= 9
    slower = [[10 + 0.2 * n + generator.gauss(0, 1) for n in range(20)] for _ in range(100)]
    assert sum(map(drifts, slower)) >= 75
    assert not drifts([1.0] * 20)
    assert not drifts([1.0, 2.0, 3.0])


def test_warm_up_is_over_when_trials_agree() -> None:
    assert stable([9.0, 5.0, 4.0, 3.0, 3.0, 3.01, 3.0, 3.0, 3.0])
    assert not stable([9.0, 8.0, 7.0, 6.0, 5.0, 4.0])
    assert not stable([3.0, 3.0])


def _timed(*times_ns: int) -> Timed:
    return Timed(times_ns, 0.0, 0.0)


def test_the_best_median_wins_and_turns_alternate() -> None:
    order: list[str] = []
    times = {"a": (100, 130, 101), "b": (110, 111, 109), "c": (90, 125, 126)}

    def measure(entry: str) -> Outcome:
        order.append(entry)
        return _timed(*times[entry])

    finals = play_final(list(times), one_by_one(measure), rounds=2)
    assert [final.entry for final in finals] == ["a", "b", "c"]
    assert order == ["a", "b", "c", "c", "b", "a"]
    assert finals[1].trials == 6
    assert finals[1].time_ms == pytest.approx(median((110, 111, 109)) / 1e6)


def test_hopeless_and_failing_finalists_leave() -> None:
    order: list[str] = []

    def measure(entry: str) -> Outcome:
        order.append(entry)
        if entry == "broken":
            return CompileError("")
        base = 1000 if entry == "slow" else 10
        return _timed(*(base + n for n in range(8)))

    finals = play_final(["fast", "slow", "broken"], one_by_one(measure), rounds=4)
    assert [final.entry for final in finals] == ["fast", "slow"]
    assert order.count("slow") == order.count("broken") == 1
    assert order.count("fast") == 4


def test_a_final_ends_when_time_is_over() -> None:
    finals = play_final(["a"], one_by_one(lambda _: _timed(5)), rounds=9, more=lambda: False)
    assert finals[0].trials == 1
