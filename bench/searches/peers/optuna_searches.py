"""Optuna's samplers on a recording.

Parameters are integers: positions in their lists of values (``suggest_int``), or choices where
a sampler is for these. A suggestion that breaks a constraint, and one that was made before, is
no evaluation: it is told as infeasible (the sampler's ``constraints_func``) with the worst time
seen, or with the time that is known. A sampler that stops finding new ones ends at a limit.

Of a recording that is a part of its space hardly a suggestion would be recorded. There each is
repaired: evaluated is the nearest row that was not evaluated yet, and the suggestion is told its
time.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import optuna  # pyright: ignore[reportMissingImports]

from bench.searches.peers.repair import nearest_row
from bench.searches.recording import Recording

_TRIALS_PER_EVALUATION = 10
_BROKEN = "broken"


def _constraint(trial: Any) -> Sequence[float]:
    return (float(trial.user_attrs.get(_BROKEN, 0.0)),)


_SAMPLERS: dict[str, Callable[[int], Any]] = {
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed, constraints_func=_constraint),
    # The default looks at parameters together where it can.
    "tpe_univariate": lambda seed: optuna.samplers.TPESampler(
        seed=seed, multivariate=False, constraints_func=_constraint
    ),
    "cmaes": lambda seed: optuna.samplers.CmaEsSampler(seed=seed),
    "nsga2": lambda seed: optuna.samplers.NSGAIISampler(seed=seed, constraints_func=_constraint),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed, constraints_func=_constraint),
}
#: Slow samplers stop after fewer trials without a new configuration.
_TRIALS = {"gp": 3}


class OptunaSearches:
    """TPE, CMA-ES, NSGA-II, the Gaussian process and random sampling."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.simplefilter("ignore")

    def close(self) -> None:
        """Nothing to remove."""

    @staticmethod
    def available() -> list[str]:
        """The samplers by name."""
        return list(_SAMPLERS)

    def trace(self, sampler: str, seed: int, evaluations: int) -> list[int]:
        """Rows in the order in which they were first evaluated."""
        recording = self._recording
        study = optuna.create_study(sampler=_SAMPLERS[sampler](seed))
        found: dict[int, None] = {}
        worst = 0.0
        for _ in range(_TRIALS.get(sampler, _TRIALS_PER_EVALUATION) * evaluations):
            trial = study.ask()
            places = [
                trial.suggest_int(name, 0, len(values) - 1) if len(values) > 1 else 0
                for name, values in recording.variables
            ]
            row = self._row(places, found)
            if row is None or row in recording.failures:
                trial.set_user_attr(_BROKEN, 1.0)
                study.tell(trial, worst or 1e6)
            else:
                time_ms = float(recording.time_ms[row])
                worst = max(worst, time_ms)
                study.tell(trial, time_ms)
            if row is not None:
                found.setdefault(row)
                if len(found) >= evaluations:
                    break
        return list(found)

    def _row(self, places: Sequence[int], found: dict[int, None]) -> int | None:
        recording = self._recording
        if recording.complete:
            pairs = zip(recording.variables, places, strict=True)
            return recording.row_of.get(tuple(values[place] for (_, values), place in pairs))
        return nearest_row(recording, places, found)
