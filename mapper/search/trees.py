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
    """The interface of :class:`~mapper.search.gaussian_process.GaussianProcess`.

    The same trees as of scikit-learn's ``ExtraTreesRegressor``, without its copying and checking
    of estimators, which takes longer than growing so small ones.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._fits = 0
        self._trees: list[Any] = []

    def fit(self, points: Floats, values: Floats, noise: Floats, steps: int) -> None:
        """Grow the trees on n x features observations, the noisy ones weighing less."""
        # An untyped package, and slow to load.
        sklearn: Any = import_module("sklearn")
        trees: Any = import_module("sklearn.tree")
        del steps
        self._fits += 1
        random = np.random.RandomState(self._seed + self._fits)
        known = points.astype(np.float32), values[:, None].copy(), 1 / (1 + noise)
        self._trees = []
        with sklearn.config_context(skip_parameter_validation=True, assume_finite=True):
            for _ in range(TREES):
                tree = trees.ExtraTreeRegressor(
                    max_features=1.0,
                    min_samples_leaf=_LEAF if len(values) >= 4 * _LEAF else 1,
                    random_state=int(random.randint(np.iinfo(np.int32).max)),
                )
                self._trees.append(tree.fit(*known, check_input=False).tree_)

    def believe(self, point: Floats, value: float) -> None:
        """Trees keep their answers: an asked candidate is not asked again anyway."""

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Means and deviations over the trees at n x features points."""
        rows = points.astype(np.float32)
        each = np.stack([tree.predict(rows)[:, 0] for tree in self._trees])
        return each.mean(axis=0), np.maximum(each.std(axis=0), 1e-6)
