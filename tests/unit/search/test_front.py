"""Fronts, hypervolumes and gains, against slow definitions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mapper.pareto.front import expected_gains, front_of, gains, hypervolume, on_front, staircase

POINTS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12).map(
    lambda found: np.array(found, np.float64)
)
REFERENCE = (10.0, 10.0)


def _dominated(point: np.ndarray, other: np.ndarray) -> bool:
    return bool((other <= point).all() and (other < point).any())


def _area(points: np.ndarray) -> int:
    """Unit squares of a 10 x 10 board that some point dominates."""
    return sum(any(p[0] <= x and p[1] <= y for p in points) for x in range(10) for y in range(10))


@given(POINTS)
def test_front_is_what_nothing_dominates(points: np.ndarray) -> None:
    expected = {tuple(p) for p in points if not any(_dominated(p, o) for o in points)}
    front = front_of(points)
    assert [tuple(p) for p in front] == sorted(expected)
    assert on_front(points).tolist() == [tuple(p) in expected for p in points]
    assert staircase([tuple(p) for p in points]) == tuple(sorted(expected))


@given(POINTS)
def test_hypervolume_is_the_dominated_area(points: np.ndarray) -> None:
    assert hypervolume(front_of(points), REFERENCE) == _area(points)


@given(POINTS, POINTS)
def test_gain_is_the_area_that_a_point_adds(points: np.ndarray, tried: np.ndarray) -> None:
    before = _area(points)
    expected = [_area(np.vstack([points, one])) - before for one in tried]
    assert gains(front_of(points), REFERENCE, tried).tolist() == expected


@given(POINTS, st.integers(0, 9))
def test_expected_gain_is_the_mean_of_gains(points: np.ndarray, second: int) -> None:
    front = front_of(points)
    random = np.random.default_rng(0)
    drawn = random.normal(4.0, 2.0, 20_000)
    sampled = gains(front, REFERENCE, np.stack([drawn, np.full(20_000, second)], axis=1))
    found = expected_gains(
        front, REFERENCE, np.array([4.0]), np.array([2.0]), np.array([float(second)])
    )
    assert abs(found[0] - sampled.mean()) <= 5 * sampled.std() / np.sqrt(20_000) + 1e-9


def test_no_points_have_no_front_and_no_area() -> None:
    empty = np.zeros((0, 2))
    assert front_of(empty).shape == (0, 2)
    assert hypervolume(empty, REFERENCE) == 0
    assert gains(empty, REFERENCE, np.array([[4.0, 5.0]])).tolist() == [30.0]


def test_points_beyond_the_reference_add_nothing() -> None:
    front = np.array([[12.0, 1.0]])
    assert hypervolume(front, REFERENCE) == 0
    assert gains(front, REFERENCE, np.array([[11.0, 0.0], [1.0, 10.0]])).tolist() == [0.0, 0.0]
