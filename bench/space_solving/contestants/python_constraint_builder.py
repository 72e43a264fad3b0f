"""python-constraint2: its default solver, and the one that Kernel Tuner chooses.

Constraints are strings, which its documentation prefers to functions.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from bench.space_solving.contestants.problem import Problem


class PythonConstraint:
    """``Problem.getSolutions``: a list of dicts."""

    def __init__(self, *, forward_check: bool) -> None:
        self._forward_check = forward_check

    def prepare(self, problem: Problem) -> None:
        """Import it."""
        self._module = import_module("constraint")
        self._problem = problem

    def construct(self) -> list[dict[str, Any]]:
        """All solutions."""
        solver = self._module.OptimizedBacktrackingSolver(forwardcheck=self._forward_check)
        space = self._module.Problem(solver)
        for name, values in self._problem.parameters.items():
            space.addVariable(name, list(values))
        for text in self._problem.constraints:
            space.addConstraint(text)
        return space.getSolutions()

    def count(self) -> int:
        """It has no way to count but to construct."""
        return len(self.construct())

    def sample(self, number: int, seed: int) -> list[dict[str, Any]]:
        """Of the list, with replacement."""
        found = self.construct()
        return random.Random(seed).choices(found, k=number)

    def columns(self, solutions: Any) -> Sequence[Any]:
        """The values, parameter by parameter."""
        return [[solution[name] for solution in solutions] for name in self._problem.names]
