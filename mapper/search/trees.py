"""A forest of randomised trees as a model with deviations, for many features of many kinds.

Extremely randomised trees (Geurts, Ernst and Wehenkel, Machine Learning 63, 2006); the
deviation is that of the trees' answers, as in SMAC (Hutter, Hoos and Leyton-Brown, LION 2011).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TREES = 60
_LEAF = 2


class Forest:
    """The interface of :class:`~mapper.search.gaussian_process.GaussianProcess`."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._fits = 0
        self._forest: Any = None
        self._points = np.zeros((0, 0))
        self._values = np.zeros(0)

    def fit(self, points: Floats, values: Floats, noise: Floats, steps: int) -> None:
        """Grow the trees on n x features observations, the noisy ones weighing less."""
        # An untyped package, and slow to load.
        ensemble: Any = import_module("sklearn.ensemble")
        del steps
        self._fits += 1
        self._points, self._values = points, values
        self._forest = ensemble.ExtraTreesRegressor(
            TREES,
            min_samples_leaf=_LEAF if len(values) >= 4 * _LEAF else 1,
            random_state=self._seed + self._fits,
        )
        self._forest.fit(points, values, sample_weight=1 / (1 + noise))

    def believe(self, point: Floats, value: float) -> None:
        """Trees keep their answers: an asked candidate is not asked again anyway."""

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Means and deviations over the trees at n x features points."""
        each = np.stack([tree.predict(points) for tree in self._forest.estimators_])
        return each.mean(axis=0), np.maximum(each.std(axis=0), 1e-6)
