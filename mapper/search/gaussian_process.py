"""A Gaussian process with a length scale for each feature, fitted by its marginal likelihood.

Matérn covariance of smoothness 5/2 (Rasmussen and Williams, "Gaussian Processes for Machine
Learning", 2006, equation 4.17, and 5.9 for the gradient), with priors on the logarithms of its
constants, so that a few dozen observations of twenty features give a sensible fit. A linear trend
may be part of it (the same, 4.2.2): what each feature does by itself shows in fewer observations
than what several do together, and it holds where nothing was observed.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_JITTER = 1e-6
_BOUNDS_SCALE = (-3.0, 5.0)
_BOUNDS_SIGNAL = (-4.0, 4.0)
_BOUNDS_NOISE = (-12.0, 1.0)
_BOUNDS_TREND = (-12.0, 3.0)
_REFUSED = 1e10


@dataclass(frozen=True, slots=True)
class Priors:
    """Normal priors of the logarithms of the length scales, and of the variances of signal, noise
    and trend.

    Features and observations have deviation 1, so a length scale of 1 says that a feature
    matters; most of many features do not. ``trend`` is the mean of the logarithm of the variance
    that a linear trend has by all features together; None leaves the trend out.
    """

    scale_mean: float = 2.0
    scale_deviation: float = 1.0
    noise_mean: float = -4.6
    deviation: float = 1.0
    trend: float | None = None


class _Asked:
    """What was worked out for m points: ``half`` (observations x m), the root of the covariance
    solved for theirs, and the variance that each has ``explained`` by it."""

    def __init__(self, points: Floats, half: Floats) -> None:
        self.points = points
        self.count = len(half)
        # Room for as many again: rows come one by one.
        self._rows: Floats = np.zeros((2 * self.count + 16, len(points)))
        self._rows[: self.count] = half
        self.explained = (half * half).sum(axis=0)

    @property
    def half(self) -> Floats:
        return self._rows[: self.count]

    def add(self, row: Floats) -> None:
        if self.count == len(self._rows):
            self._rows = np.vstack([self._rows, np.zeros(self._rows.shape)])
        self._rows[self.count] = row
        self.count += 1
        self.explained += row * row


class GaussianProcess:
    """Fit to observations, then asked for means and deviations anywhere."""

    def __init__(self, features: int, priors: Priors | None = None) -> None:
        self._priors = priors = priors or Priors()
        self._features = features
        trend = () if priors.trend is None else (priors.trend,)
        self._means = np.concatenate(
            [np.full(features, priors.scale_mean), [0.0, priors.noise_mean, *trend]]
        )
        self._deviations = np.full_like(self._means, priors.deviation)
        self._deviations[:features] = priors.scale_deviation
        # Logarithms of the length scales, the variances of signal and noise, and of the trend.
        self._constants = self._means.copy()
        self._constants[:features] -= 0.3
        self._points = np.zeros((0, features))
        self._values = np.zeros(0)
        self._noise = np.zeros(0)
        self._root = np.zeros((0, 0))
        self._asked: _Asked | None = None

    @property
    def length_scales(self) -> Floats:
        """Of each feature; large where a feature hardly matters."""
        return np.exp(self._constants[: self._features])

    def fit(self, points: Floats, values: Floats, noise: Floats, steps: int) -> None:
        """Take n x features observations with the variance of each one's noise, and improve the
        constants by up to ``steps`` steps of L-BFGS from where they are."""
        if steps:
            squares = (points[:, None, :] - points[None, :, :]) ** 2
            bounds = [_BOUNDS_SCALE] * self._features
            bounds += [_BOUNDS_SIGNAL, _BOUNDS_NOISE, _BOUNDS_TREND]
            # An untyped package.
            optimize: Any = import_module("scipy.optimize")
            found: Any = optimize.minimize(
                self._loss,
                self._constants,
                (squares, self._products(points, points), values, noise),
                jac=True,
                method="L-BFGS-B",
                bounds=bounds[: len(self._constants)],
                options={"maxiter": steps},
            )
            if np.isfinite(found.x).all():
                self._constants = np.asarray(found.x, np.float64)
        known = len(self._points)
        self._values = values
        if (
            not steps
            and np.array_equal(points[:known], self._points)
            and np.array_equal(noise[:known], self._noise)
        ):
            for point, own in zip(points[known:], noise[known:], strict=True):
                self._add(point, float(own))
            return
        self._points, self._noise = points, noise
        covariance = self._covariance(points, points)
        covariance[np.diag_indices_from(covariance)] += self._variances[1] + noise + _JITTER
        self._root = _root_of(covariance)
        self._asked = None

    def believe(self, point: Floats, value: float) -> None:
        """Take one more observation without noise of its own; the constants stay."""
        self._values = np.append(self._values, value)
        self._add(point, 0.0)

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Means and deviations of the function (without noise) at n x features points.

        Asked of the same array again, it only works out what was observed since.
        """
        asked = self._asked
        if asked is None or asked.points is not points:
            half = _solved(self._root, self._covariance(self._points, points))
            self._asked = asked = _Asked(points, half)
        for place in range(asked.count, len(self._points)):
            row = self._covariance(self._points[place : place + 1], points)[0]
            row -= self._root[place, :place] @ asked.half
            asked.add(row / self._root[place, place])
        means = _solved(self._root, self._values) @ asked.half
        variances = self._own(points) - asked.explained
        return means, np.sqrt(np.maximum(variances, 1e-9))

    def _add(self, point: Floats, noise: float) -> None:
        """Add a row to the root of the covariance; the work for one more observation."""
        row = _solved(self._root, self._covariance(self._points, point[None])[:, 0])
        own = self._own(point[None])[0] + self._variances[1] + noise + _JITTER
        size = len(row)
        root = np.zeros((size + 1, size + 1))
        root[:size, :size] = self._root
        root[size, :size] = row
        root[size, size] = np.sqrt(max(float(own - row @ row), _JITTER))
        self._root = root
        self._points = np.vstack([self._points, point])
        self._noise = np.append(self._noise, noise)

    @property
    def _variances(self) -> tuple[float, float, float]:
        return _variances_of(self._constants, self._features)

    def _products(self, left: Floats, right: Floats) -> Floats:
        """The covariance of a trend of variance 1."""
        return left @ right.T / max(self._features, 1)

    def _own(self, points: Floats) -> Floats:
        """The variance of the function at each of n x features points, before observations."""
        signal, _, trend = self._variances
        if self._priors.trend is None:
            return np.full(len(points), signal)
        return signal + trend / max(self._features, 1) * (points * points).sum(axis=1)

    def _covariance(self, left: Floats, right: Floats) -> Floats:
        inverse = np.exp(-self._constants[: self._features])
        a, b = left * inverse, right * inverse
        squares = (a * a).sum(1)[:, None] + (b * b).sum(1)[None, :] - 2 * a @ b.T
        distance = np.sqrt(5 * np.maximum(squares, 0.0))
        polynomial = 1 + distance + distance * distance / 3
        signal, _, trend = self._variances
        covariance = signal * polynomial * np.exp(-distance)
        if self._priors.trend is not None:
            covariance += trend * self._products(left, right)
        return covariance

    def _loss(
        self, constants: Floats, squares: Floats, products: Floats, values: Floats, noise: Floats
    ) -> tuple[float, Floats]:
        """The negative logarithm of posterior density of the constants, and its gradient.

        Of n observations, the ``squares`` of differences (n x n x features) and the ``products``
        (n x n) of a trend.
        """
        features = self._features
        inverse = np.exp(-2 * constants[:features])
        signal, own_noise, trend = _variances_of(constants, features)
        distance = np.sqrt(5 * (squares @ inverse) + 1e-12)
        decay = np.exp(-distance)
        covariance = signal * (1 + distance + distance * distance / 3) * decay
        size = len(values)
        noisy = covariance + np.diag(own_noise + noise + _JITTER)
        if self._priors.trend is not None:
            noisy += trend * products
        try:
            root = _root_of(noisy)
        except np.linalg.LinAlgError:
            return _REFUSED, np.zeros_like(constants)
        half = _solved(root, np.eye(size))
        precision = half.T @ half
        weights = precision @ values
        loss = 0.5 * float(values @ weights) + float(np.log(np.diag(root)).sum())
        outer = precision - np.outer(weights, weights)
        # Of the covariance by the squared scaled distance.
        slope = -signal * 5 / 6 * (1 + distance) * decay * outer
        gradient = np.empty_like(constants)
        gradient[:features] = -np.einsum("ij,ijk->k", slope, squares, optimize=True) * inverse
        gradient[features] = 0.5 * float((outer * covariance).sum())
        gradient[features + 1] = 0.5 * own_noise * float(np.trace(outer))
        if self._priors.trend is not None:
            gradient[features + 2] = 0.5 * trend * float((outer * products).sum())
        standard = (constants - self._means) / self._deviations
        loss += 0.5 * float((standard**2).sum())
        return loss, gradient + standard / self._deviations


def _variances_of(constants: Floats, features: int) -> tuple[float, float, float]:
    """Of the signal, the noise and the trend; the last is 0 where there is none."""
    signal, noise, *trend = np.exp(constants[features:]).tolist()
    return signal, noise, trend[0] if trend else 0.0


def _root_of(covariance: Floats) -> Floats:
    """The Cholesky factor; LinAlgError where rounding made the matrix indefinite."""
    found: Any = np.linalg.cholesky(covariance)
    return np.asarray(found, np.float64)


def _solved(lower: Floats, right: Floats) -> Floats:
    """The solution for a lower triangular matrix."""
    # An untyped package.
    linalg: Any = import_module("scipy.linalg")
    found: Any = linalg.solve_triangular(lower, right, lower=True, check_finite=False)
    return np.asarray(found, np.float64)
