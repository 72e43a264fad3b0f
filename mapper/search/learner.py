"""What learns times from outcomes: a model, what it is shown of candidates, and of times.

Logarithms of times above a quantile of those seen count as that quantile, and so do failures:
what is slow need not be told from what is very slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mapper.search.features import Part
from mapper.search.gaussian_process import GaussianProcess, Priors
from mapper.search.trees import Forest

Floats = NDArray[np.float64]

#: A Gaussian process cannot tell more features than this apart from few observations.
MOST_FEATURES = 64
#: Constants are fitted anew when this part of the outcomes is new: more hardly move them.
_REFITS = 16
_PRIORS = Priors()
_SIZES = Part()


class Model(Protocol):
    """What learns times."""

    def fit(self, points: Floats, values: Floats, noise: Floats, steps: int) -> None:
        """Take all observations."""
        ...

    def believe(self, point: Floats, value: float) -> None:
        """Take one that is only expected."""
        ...

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Means and deviations."""
        ...


@dataclass(frozen=True, slots=True)
class View:
    """How a learner sees a space: the ``part`` of the columns; the quantile at which times are
    ``clipped``; what it expects of features (``priors``)."""

    part: Part = _SIZES
    clipped: float = 0.75
    priors: Priors = _PRIORS


class Learner:
    """A Gaussian process, or a forest if ``trees`` or if there are too many features. Its constants
    are fitted anew every ``refit`` outcomes, less often once there are many."""

    def __init__(self, view: View, seed: int, *, refit: int, steps: int, trees: bool) -> None:
        self.view = view
        self._seed = seed
        self._refit, self._steps, self._trees = refit, steps, trees
        self._model: Model | None = None
        self._fitted_at = -1
        # Of the values when constants were fitted: scaled by it until they are again, what the
        # model worked out holds.
        self._deviation = 1.0

    def fit(self, columns: Floats, log_times: Floats, noise: Floats) -> tuple[Model, Floats]:
        """Learn n candidates: n x features, logarithms of times (infinite where it failed), and
        the relative noise of each; the model, and the times as it sees them."""
        timed = np.isfinite(log_times)
        limit = float(np.quantile(log_times[timed], self.view.clipped))
        clipped = np.minimum(log_times, limit)
        told, features = columns.shape
        if self._model is None:
            self._model = (
                Forest(self._seed)
                if self._trees or features > MOST_FEATURES
                else GaussianProcess(features, self.view.priors)
            )
        due = self._fitted_at < 0 or told - self._fitted_at >= max(self._refit, told // _REFITS)
        if due:
            self._fitted_at = told
            self._deviation = max(float(clipped.std()), 1e-9)
        values = (clipped - clipped.mean()) / self._deviation
        variances = noise**2 / self._deviation**2
        self._model.fit(columns, values, variances, self._steps if due else 0)
        return self._model, values
