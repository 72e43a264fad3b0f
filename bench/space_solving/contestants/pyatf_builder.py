"""pyATF's chain of trees (Rasch et al., "Efficient Auto-Tuning of Parallel Programs with
Interdependent Tuning Parameters via Auto-Tuning Framework (ATF)", TACO 2021).

A parameter's constraint may speak of itself and of parameters before it, so each constraint
stands with the last of its parameters, as a user of pyATF writes it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from bench.space_solving.contestants.problem import Problem, predicate_function


class PyAtf:
    """Counting is the tree alone. Construction is the tree and every configuration in a list,
    through the index that pyATF offers for that (``enable_1d_access``)."""

    def prepare(self, problem: Problem) -> None:
        """Import it and write the constraints as functions."""
        self._module = import_module("pyatf.search_space")
        parameter, values_of = import_module("pyatf.tp").TP, import_module("pyatf.range").Set
        self._problem = problem
        # It looks for the functions' source text here, which takes milliseconds.
        self._parameters = [
            parameter(name, values_of(*values), self._function(name))
            for name, values in problem.parameters.items()
        ]
        # Its recursion is as deep as there are parameters, at two frames each.
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 1000 + 10 * len(problem.names)))

    def _function(self, name: str) -> Callable[..., bool] | None:
        problem = self._problem
        decided = problem.decided_by[name]
        if not decided:
            return None
        used = {other for index in decided for other in problem.constraint_names[index]} | {name}
        text = " and ".join(f"({problem.constraints[index]})" for index in decided)
        return predicate_function(text, [other for other in problem.names if other in used])

    def _tree(self, *, indexed: bool) -> Any:
        return self._module.SearchSpace(*self._parameters, enable_1d_access=indexed, verbosity=0)

    def construct(self) -> list[dict[str, Any]]:
        """The tree and all configurations."""
        space = self._tree(indexed=True)
        return [space.get_configuration(index) for index in range(space.constrained_size)]

    def count(self) -> int:
        """The tree's number of leaves."""
        return int(self._tree(indexed=False).constrained_size)

    def sample(self, number: int, seed: int) -> list[dict[str, Any]]:
        """Random coordinates: at each level a child in proportion to its leaves, so uniform."""
        space = self._tree(indexed=False)
        draw = random.Random(seed).random
        depth = space.num_tps
        drawn = (tuple(1.0 - draw() for _ in range(depth)) for _ in range(number))
        return [space.get_configuration(coordinates) for coordinates in drawn]

    def columns(self, solutions: Any) -> Sequence[Any]:
        """The values, parameter by parameter."""
        return [[solution[name] for solution in solutions] for name in self._problem.names]
