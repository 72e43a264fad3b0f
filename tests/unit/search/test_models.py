"""The Gaussian process and the forest learn what they are shown, and know where they were not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor  # pyright: ignore[reportMissingTypeStubs]

from mapper.search.features import Features, Part
from mapper.search.gaussian_process import GaussianProcess, Priors
from mapper.search.learner import Learner, Model, View
from mapper.search.trees import TREES, Forest
from tests.unit.search.spaces import limited_space

Floats = NDArray[np.float64]
_WITH_TREND = Priors(trend=-1.0)


def _points(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 4))


def _function(points: np.ndarray) -> np.ndarray:
    return np.sin(2 * points[:, 0]) + 0.5 * points[:, 1]


def test_the_forest_has_the_trees_of_scikit_learn() -> None:
    random = np.random.default_rng(1)
    points, noise = random.normal(size=(20, 70)), random.random(20)
    values = points[:, 0] + 0.1 * random.normal(size=20)
    forest = Forest(4)
    forest.fit(points, values, noise, 0)
    means, deviations = forest.predict(points)
    theirs: Any = ExtraTreesRegressor(TREES, min_samples_leaf=2, random_state=5)
    theirs.fit(points, values, sample_weight=1 / (1 + noise))
    each = np.stack([tree.predict(points) for tree in theirs.estimators_])
    assert np.array_equal(means, each.mean(axis=0))
    assert np.array_equal(deviations, np.maximum(each.std(axis=0), 1e-6))


@pytest.mark.parametrize("model", [GaussianProcess(4), Forest(0)], ids=["process", "forest"])
def test_predictions_rank_what_was_not_seen(model: Model) -> None:
    points = _points(80, 0)
    model.fit(points, _function(points), np.zeros(80), 30)
    unseen = _points(200, 1)
    means, deviations = model.predict(unseen)
    ranks = np.array([np.argsort(np.argsort(v)) for v in (means, _function(unseen))])
    assert np.corrcoef(ranks)[0, 1] > 0.8  # pyright: ignore[reportIndexIssue]
    assert (deviations > 0).all()


def test_the_process_fits_what_it_saw_and_is_unsure_far_away() -> None:
    points = _points(40, 2)
    model = GaussianProcess(4)
    model.fit(points, _function(points), np.zeros(40), 30)
    means, deviations = model.predict(points)
    assert np.abs(means - _function(points)).max() < 0.3
    assert model.predict(points[:1] + 50.0)[1][0] > 3 * deviations.max()


def test_length_scales_tell_features_that_matter() -> None:
    points = _points(80, 3)
    model = GaussianProcess(4)
    model.fit(points, _function(points), np.zeros(80), 40)
    scales = model.length_scales
    assert scales[:2].max() < scales[2:].min()


def test_a_trend_is_learned_from_few_and_holds_far_away() -> None:
    points, unseen = _points(12, 10), 4.0 * _points(50, 11)
    slope = np.array([1.0, -0.5, 0.3, 0.0])
    without, with_trend = GaussianProcess(4), GaussianProcess(4, _WITH_TREND)
    errors: list[float] = []
    for model in (without, with_trend):
        model.fit(points, points @ slope, np.zeros(12), 30)
        means, deviations = model.predict(unseen)
        errors.append(float(np.abs(means - unseen @ slope).mean()))
        assert (deviations > 0).all()
    assert errors[1] < errors[0] / 4


@pytest.mark.parametrize("priors", [Priors(), _WITH_TREND], ids=["without", "with trend"])
def test_without_any_feature_all_are_alike(priors: Priors) -> None:
    model = GaussianProcess(0, priors)
    model.fit(np.zeros((3, 0)), np.array([1.0, 0.0, -1.0]), np.zeros(3), 10)
    model.believe(np.zeros(0), 0.5)
    means, deviations = model.predict(np.zeros((4, 0)))
    assert np.ptp(means) == 0 and np.isfinite(means).all() and (deviations > 0).all()


@pytest.mark.parametrize("priors", [Priors(), _WITH_TREND], ids=["without", "with trend"])
def test_the_gradient_is_that_of_the_loss(priors: Priors) -> None:
    points, model = _points(20, 4), GaussianProcess(4, priors)
    squares = (points[:, None] - points[None]) ** 2
    products = points @ points.T / 4
    values, noise = _function(points), np.full(20, 0.01)
    constants = 6 if priors.trend is None else 7
    at = np.random.default_rng(5).normal(size=constants) * 0.3

    def loss(at: Floats) -> tuple[float, Floats]:
        return model._loss(at, squares, products, values, noise)

    gradient = loss(at)[1]
    for place in range(constants):
        step = np.zeros(constants)
        step[place] = 1e-5
        above, below = (loss(at + s * step)[0] for s in (1, -1))
        assert gradient[place] == pytest.approx((above - below) / 2e-5, rel=1e-4, abs=1e-5)


def test_noisy_observations_are_believed_less() -> None:
    points = np.array([[0.0], [0.0], [3.0]])
    values = np.array([1.0, -1.0, 0.0])
    model = GaussianProcess(1)
    model.fit(points, values, np.array([0.0, 10.0, 0.0]), 0)
    assert model.predict(points[:1])[0][0] > 0.5


def test_believing_a_point_makes_it_certain() -> None:
    points = _points(20, 6)
    model = GaussianProcess(4)
    model.fit(points, _function(points), np.zeros(20), 20)
    there = np.full(4, 2.5)
    before = model.predict(there[None])[1][0]
    model.believe(there, 7.0)
    mean, deviation = model.predict(there[None])
    assert mean[0] > 5
    assert deviation[0] < before / 2


@pytest.mark.parametrize("priors", [Priors(), _WITH_TREND], ids=["without", "with trend"])
def test_observations_one_by_one_give_what_all_at_once_do(priors: Priors) -> None:
    points, asked = _points(30, 7), _points(50, 8)
    values, noise = _function(points), np.linspace(0.0, 0.1, 30)
    grown, whole = GaussianProcess(4, priors), GaussianProcess(4, priors)
    for model in (grown, whole):
        model.fit(points[:12], values[:12], noise[:12], 20)
    grown.predict(asked)
    for count in range(13, 31):
        grown.fit(points[:count], values[:count], noise[:count], 0)
        if count % 4 == 0:
            grown.predict(asked)
    # Other noise: nothing of what was worked out holds.
    whole.fit(points, values, noise + 1.0, 0)
    other = whole.predict(asked)[0]
    whole.fit(points, values, noise, 0)
    for one, all_at_once in zip(grown.predict(asked), whole.predict(asked), strict=True):
        assert one == pytest.approx(all_at_once, rel=1e-6, abs=1e-8)
    assert np.abs(other - whole.predict(asked)[0]).max() > 0.01


def test_a_learner_sees_slow_times_and_failures_alike() -> None:
    learner = Learner(View(clipped=0.5), 0, refit=4, steps=5, trees=False)
    log_times = np.array([0.0, 1.0, 2.0, 8.0, np.inf])
    model, values = learner.fit(_points(5, 9), log_times, np.zeros(5))
    # The median of those that were timed is 1.5.
    assert values[2] == values[3] == values[4] == values.max()
    assert values[1] - values[0] == pytest.approx(2 * (values[2] - values[1]))
    assert isinstance(model, GaussianProcess)
    many = Learner(View(), 0, refit=4, steps=5, trees=False)
    wide = np.random.default_rng(0).normal(size=(5, 65))
    assert isinstance(many.fit(wide, log_times, np.zeros(5))[0], Forest)


def test_values_of_small_domains_have_columns_at_the_end() -> None:
    space = limited_space()
    rows = np.array([[2, 4, 1], [8, 4, 2], [8, 2, 3], [4, 8, 4]], np.int64)
    features = Features(space.variables)
    found = features.of(rows)
    # Eight values of the first two, four of the last; those not there are constant.
    values = features.places(Part(sizes=False, known=False, values=True))
    assert values.tolist() == list(range(3, 3 + 3 + 3 + 4))
    assert found.shape == (4, 3 + len(values))
    (third,) = np.flatnonzero((found[:, -4:] > 0)[2])
    assert third == 2


def test_features_have_what_constraints_speak_of() -> None:
    space = limited_space()
    rows = np.array([[16, 4, 1], [4, 16, 1], [1, 1, 1]], np.int64)
    plain = Features(space.variables).of(rows)
    features = Features(space.variables, space)
    telling = features.of(rows)
    assert telling.shape[1] == plain.shape[1] + 1
    # The product of the first two is the same for the first two rows.
    product = telling[:, features.places(Part())[-1]]
    assert product[0] == product[1] != product[2]


def test_further_columns_and_constant_ones() -> None:
    space = limited_space()
    rows = np.array([[2, 4, 1], [8, 4, 1]], np.int64)
    found = Features(space.variables).of(rows, rows[:, :1].astype(float) ** 2)
    # Its size, the square, and whether it is 2 and whether it is 8.
    assert found.shape == (2, 4)
    assert found.mean(axis=0) == pytest.approx(0)
