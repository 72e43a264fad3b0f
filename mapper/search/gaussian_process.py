"""A Gaussian process with a length scale for each feature, fitted by its marginal likelihood.

Matérn covariance of smoothness 5/2 (Rasmussen and Williams, "Gaussian Processes for Machine
Learning", 2006, equation 4.17, and 5.9 for the gradient), with priors on the logarithms of its
constants, so that a few dozen observations of twenty features give a sensible fit.
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
_REFUSED = 1e10


@dataclass(frozen=True, slots=True)
class Priors:
    """Normal priors of the logarithms of the length scales, the signal's and the noise's variance.

    Features and observations have deviation 1, so a length scale of 1 says that a feature
    matters; most of many features do not.
    """

    scale_mean: float = 2.0
    scale_deviation: float = 1.0
    noise_mean: float = -4.6
    deviation: float = 1.0


class GaussianProcess:
    """Fit to observations, then asked for means and deviations anywhere."""

    def __init__(self, features: int, priors: Priors | None = None) -> None:
        self._priors = priors = priors or Priors()
        self._constants = np.concatenate(
            [np.full(features, priors.scale_mean - 0.3), [0.0, priors.noise_mean]]
        )
        self._points = np.zeros((0, features))
        self._values = np.zeros(0)
        self._noise = np.zeros(0)
        self._root = np.zeros((0, 0))
        self._weights = np.zeros(0)

    @property
    def length_scales(self) -> Floats:
        """Of each feature; large where a feature hardly matters."""
        return np.exp(self._constants[:-2])

    def fit(self, points: Floats, values: Floats, noise: Floats, steps: int) -> None:
        """Take n x features observations with the variance of each one's noise, and improve the
        constants by up to ``steps`` steps of L-BFGS from where they are."""
        if steps:
            squares = (points[:, None, :] - points[None, :, :]) ** 2
            bounds = [_BOUNDS_SCALE] * points.shape[1] + [_BOUNDS_SIGNAL, _BOUNDS_NOISE]
            # An untyped package.
            optimize: Any = import_module("scipy.optimize")
            found: Any = optimize.minimize(
                self._loss,
                self._constants,
                (squares, values, noise),
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                options={"maxiter": steps},
            )
            if np.isfinite(found.x).all():
                self._constants = np.asarray(found.x, np.float64)
        self._points, self._values, self._noise = points, values, noise
        self._solve()

    def believe(self, point: Floats, value: float) -> None:
        """Take one more observation without noise of its own; the constants stay."""
        self._points = np.vstack([self._points, point])
        self._values = np.append(self._values, value)
        self._noise = np.append(self._noise, 0.0)
        self._solve()

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Means and deviations of the function (without noise) at n x features points."""
        cross = self._covariance(points, self._points)
        means = cross @ self._weights
        half = _solved(self._root, cross.T)
        variances = np.exp(self._constants[-2]) - (half * half).sum(axis=0)
        return means, np.sqrt(np.maximum(variances, 1e-9))

    def _solve(self) -> None:
        covariance = self._covariance(self._points, self._points)
        covariance[np.diag_indices_from(covariance)] += (
            np.exp(self._constants[-1]) + self._noise + _JITTER
        )
        self._root = _root_of(covariance)
        self._weights = _solved(self._root.T, _solved(self._root, self._values))

    def _covariance(self, left: Floats, right: Floats) -> Floats:
        inverse = np.exp(-self._constants[:-2])
        a, b = left * inverse, right * inverse
        squares = (a * a).sum(1)[:, None] + (b * b).sum(1)[None, :] - 2 * a @ b.T
        distance = np.sqrt(5 * np.maximum(squares, 0.0))
        polynomial = 1 + distance + distance * distance / 3
        return np.exp(self._constants[-2]) * polynomial * np.exp(-distance)

    def _loss(
        self, constants: Floats, squares: Floats, values: Floats, noise: Floats
    ) -> tuple[float, Floats]:
        """The negative logarithm of posterior density of the constants, and its gradient."""
        priors = self._priors
        inverse = np.exp(-2 * constants[:-2])
        signal, own_noise = np.exp(constants[-2]), np.exp(constants[-1])
        distance = np.sqrt(5 * (squares @ inverse) + 1e-12)
        decay = np.exp(-distance)
        covariance = signal * (1 + distance + distance * distance / 3) * decay
        size = len(values)
        noisy = covariance + np.diag(own_noise + noise + _JITTER)
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
        gradient[:-2] = -np.einsum("ij,ijk->k", slope, squares, optimize=True) * inverse
        gradient[-2] = 0.5 * float((outer * covariance).sum())
        gradient[-1] = 0.5 * own_noise * float(np.trace(outer))
        means = np.full_like(constants, priors.scale_mean)
        means[-2:] = 0.0, priors.noise_mean
        deviations = np.full_like(constants, priors.scale_deviation)
        deviations[-2:] = priors.deviation
        standard = (constants - means) / deviations
        loss += 0.5 * float((standard**2).sum())
        return loss, gradient + standard / deviations


def _root_of(covariance: Floats) -> Floats:
    """The Cholesky factor; LinAlgError where rounding made the matrix indefinite."""
    found: Any = np.linalg.cholesky(covariance)
    return np.asarray(found, np.float64)


def _solved(matrix: Floats, right: Floats) -> Floats:
    found: Any = np.linalg.solve(matrix, right)
    return np.asarray(found, np.float64)
