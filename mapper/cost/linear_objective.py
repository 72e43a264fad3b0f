"""A model of the time that CP-SAT can optimise: a sum of what each single decision costs.

The logarithm of the time is taken as a sum of one number for each variable's value, fitted by
ridge regression to what was measured. It knows nothing of how decisions work together, but the
solver proves which valid candidates have the least sum, in spaces of any size, and so what no
candidate is below.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from mapper.constraint_rules.predicate import Variable
from mapper.errors import InputError, Problem, UnsatisfiableError
from mapper.solver.enumeration import enumerate_assignments
from mapper.solver.preferences import best, levels
from mapper.solver.restrictions import Restrictions
from mapper.solver.space import Space

#: Steps of the logarithm that the solver, which knows whole numbers only, tells apart.
_STEP = 1e-3
_RIDGE = 1.0


@dataclass(frozen=True, slots=True)
class LinearModel:
    """``base`` and, for each value that was seen, what it adds to the logarithm of the time."""

    base: float
    effects: Mapping[tuple[Variable, int], float]

    def log_time(self, assignment: Mapping[Variable, int]) -> float:
        """The predicted logarithm (of ms); a value never seen adds nothing."""
        return self.base + sum(
            self.effects.get((variable, value), 0.0) for variable, value in assignment.items()
        )

    def restrictions(self) -> Restrictions:
        """The model as preferences: a value weighs the more the less it costs.

        Weights are relative to the dearest value of each variable.
        """
        dearest: dict[Variable, float] = {}
        for (variable, _), effect in self.effects.items():
            dearest[variable] = max(dearest.get(variable, effect), effect)
        weights = {
            key: round((dearest[key[0]] - effect) / _STEP) for key, effect in self.effects.items()
        }
        return Restrictions(
            preferred={key: weight for key, weight in weights.items() if weight > 0}
        )


def fit_linear(
    space: Space, measured: Sequence[tuple[Mapping[Variable, int], float]]
) -> LinearModel:
    """Fit to assignments with times in ms. Every value of every variable gets an effect, those
    never seen 0. InputError without measurements."""
    if not measured:
        raise InputError(Problem("measured", "there is nothing to fit"))
    keys = [
        (variable, value)
        for variable, domain in space.variables
        if len(domain) > 1
        for value in domain
    ]
    place = {key: number for number, key in enumerate(keys)}
    matrix = np.zeros((len(measured), len(keys)))
    for row, (assignment, _) in enumerate(measured):
        for variable, value in assignment.items():
            column = place.get((variable, value))
            if column is not None:
                matrix[row, column] = 1.0
    logs = np.log([time_ms for _, time_ms in measured])
    base = float(logs.mean())
    # Ridge regression by the kernel trick: measurements are fewer than values.
    gram = matrix @ matrix.T + _RIDGE * np.eye(len(measured))
    effects = matrix.T @ np.linalg.solve(gram, logs - base)
    return LinearModel(base, dict(zip(keys, effects.tolist(), strict=True)))


def best_predicted(
    space: Space, model: LinearModel, count: int, *, time_limit_s: float | None = None
) -> Iterator[dict[Variable, int]]:
    """Up to ``count`` valid assignments with the least predicted times, least first.

    Raises as :func:`mapper.solver.preferences.levels`.
    """
    left = count
    for _, level in levels(space, model.restrictions(), time_limit_s=time_limit_s):
        with enumerate_assignments(level, {}, time_limit_s=time_limit_s) as found:
            for assignment in islice(found, left):
                left -= 1
                yield dict(assignment)
        if not left:
            return


def least_log_time(space: Space, model: LinearModel, *, time_limit_s: float | None = None) -> float:
    """No valid assignment is predicted below this logarithm of ms, but for rounding to 0.001 a
    variable. UnsatisfiableError if there is no valid assignment; LimitError out of time."""
    found = best(space, model.restrictions(), time_limit_s=time_limit_s)
    if found is None:
        raise UnsatisfiableError("the space has no valid assignment")
    return model.log_time(found.assignment)
