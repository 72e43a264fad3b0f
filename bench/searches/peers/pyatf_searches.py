"""pyATF's search techniques on its chain of trees, one step at a time.

What failed costs :data:`_FAILED_MS`: its techniques compare costs and some cannot do without.
A technique that proposes the same configurations again and again ends at a limit of steps.
"""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Callable, Mapping
from typing import Any

import pyatf.search_techniques as techniques  # pyright: ignore[reportMissingImports]
from pyatf import TP, Set, Tuner  # pyright: ignore[reportMissingImports]

from bench.searches.recording import Recording
from bench.space_solving.contestants.problem import names_in, predicate_function

_FAILED_MS = 1e6
_STEPS_PER_EVALUATION = 100
_TECHNIQUES: dict[str, Callable[[], Any]] = {
    "random": techniques.Random,
    "simulated_annealing": techniques.SimulatedAnnealing,
    "differential_evolution": techniques.DifferentialEvolution,
    "pattern_search": techniques.PatternSearch,
    "torczon": techniques.Torczon,
    "auc_bandit": lambda: techniques.AUCBandit(
        (techniques.SimulatedAnnealing(), techniques.PatternSearch(), techniques.Torczon())
    ),
    "round_robin": lambda: techniques.RoundRobin(
        (techniques.SimulatedAnnealing(), techniques.DifferentialEvolution(), techniques.Torczon())
    ),
}


class PyAtfSearches:
    """All techniques but exhaustive search and OpenTuner (a package of its own)."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._names = [name for name, _ in recording.variables]
        decided: dict[str, list[str]] = {name: [] for name in self._names}
        for text in recording.constraints:
            used = names_in(text, dict.fromkeys(self._names))
            decided[max(used, key=self._names.index)].append(text)
        self._parameters = [
            TP(name, Set(*values), self._constraint(name, decided[name]))
            for name, values in recording.variables
        ]

    def close(self) -> None:
        """Nothing to remove."""

    @staticmethod
    def available() -> list[str]:
        """The techniques by name."""
        return list(_TECHNIQUES)

    def _constraint(self, name: str, texts: list[str]) -> Callable[..., bool] | None:
        if not texts:
            return None
        text = " and ".join(f"({text})" for text in texts)
        used = [
            other for other in self._names if other in names_in(text, {n: 0 for n in self._names})
        ]
        return predicate_function(text, used if name in used else [*used, name])

    def trace(self, technique: str, seed: int, evaluations: int) -> list[int]:
        """Rows in the order in which they were first evaluated."""
        random.seed(seed)
        found: dict[int, None] = {}
        recording = self._recording

        def cost(configuration: Mapping[str, Any]) -> float:
            row = recording.row_of[tuple(int(configuration[name]) for name in self._names)]
            found.setdefault(row)
            return _FAILED_MS if row in recording.failures else float(recording.time_ms[row])

        with contextlib.redirect_stdout(io.StringIO()):
            tuner = Tuner().tuning_parameters(*self._parameters)
            tuner = tuner.search_technique(_TECHNIQUES[technique]()).verbosity(0)
            for _ in range(_STEPS_PER_EVALUATION * evaluations):
                tuner.make_step(cost)
                if len(found) >= evaluations:
                    break
        return list(found)
