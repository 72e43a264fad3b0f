"""Distributions of trials: intervals of the median keep what they promise."""

from __future__ import annotations

import random
from math import comb
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.dashboard.views.times import histogram, time_rows, verdict
from api.dashboard.views.trials import distribution, median_interval

TRIALS = st.lists(st.integers(1, 10**12), min_size=1, max_size=60)


@pytest.mark.parametrize("number", [1, 2, 5, 6, 7, 20, 50, 51, 2000])
def test_the_interval_is_the_narrowest_pair_of_order_statistics_that_covers_enough(number):
    ordered = [float(value) for value in range(number)]
    found = median_interval(ordered, 0.95)
    index = int(found.low_ms)
    assert found.high_ms == number - 1 - index

    def coverage(i: int) -> float:
        return 1 - 2 * sum(comb(number, k) for k in range(i + 1)) / (1 << number)

    assert found.coverage == pytest.approx(coverage(index), abs=1e-12)
    if index > 0:
        assert found.coverage >= 0.95
    if index < (number - 1) // 2:
        assert coverage(index + 1) < 0.95


def test_the_interval_holds_the_true_median_as_often_as_it_says():
    draws = random.Random(7)
    inside = 0
    for _ in range(2000):
        trials = sorted(draws.lognormvariate(0.0, 1.0) for _ in range(15))
        found = median_interval(trials)
        inside += found.low_ms <= 1.0 <= found.high_ms
    assert inside / 2000 == pytest.approx(median_interval([1.0] * 15).coverage, abs=0.02)


@given(TRIALS)
def test_every_trial_is_in_one_bin_or_counted_beyond(trials):
    found = distribution(trials)
    assert sum(bin_.count for bin_ in found.bins) + found.beyond == len(trials)
    assert found.median_ms == pytest.approx(median(trials) / 1e6)
    figure = histogram(found)
    assert all(0 <= column.x <= 100 and 0 <= column.height <= 100 for column in figure.columns)
    assert figure.low <= figure.median <= figure.high or found.beyond


def test_one_late_trial_does_not_squeeze_the_others_together():
    found = distribution([1_000_000 + n for n in range(0, 40_000, 1000)] + [90_000_000])
    assert found.beyond == 1 and found.most_ms == 90.0
    assert found.bins[-1].high_ms < 2


def test_a_verdict_is_given_where_the_intervals_do_not_overlap_only():
    slow = distribution([2_000_000 + n for n in range(20)])
    fast = distribution([1_000_000 + n for n in range(20)])
    wide = distribution([500_000 * (1 + n % 6) for n in range(20)])
    assert verdict(slow, fast) == "2.00 times as fast"
    assert verdict(fast, slow) == "2.00 times as slow"
    assert "no difference" in verdict(slow, wide)
    rows = time_rows([slow, None, fast])
    assert rows.rows[1] is None and rows.scale is not None
    assert rows.rows[0] is not None and rows.rows[2] is not None
    assert rows.rows[0].median > rows.rows[2].median
    assert time_rows([None]).scale is None
