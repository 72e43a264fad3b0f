"""Pure brute force: every combination, one by one, against all constraints."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from bench.space_solving.contestants.problem import Problem, predicate_function


class PlainPython:
    """``itertools.product`` and one compiled function."""

    def prepare(self, problem: Problem) -> None:
        """Write the constraints as one function of all parameters."""
        text = " and ".join(f"({text})" for text in problem.constraints) or "True"
        self._holds = predicate_function(text, problem.names)
        self._values = tuple(problem.parameters.values())

    def _found(self) -> Iterator[tuple[Any, ...]]:
        holds = self._holds
        return (row for row in product(*self._values) if holds(*row))

    def construct(self) -> list[tuple[Any, ...]]:
        """A list of tuples."""
        return list(self._found())

    def count(self) -> int:
        """Nothing is kept."""
        return sum(1 for _ in self._found())

    def sample(self, number: int, seed: int) -> list[tuple[Any, ...]]:
        """Of the list, with replacement."""
        return random.Random(seed).choices(self.construct(), k=number)

    def columns(self, solutions: Any) -> Sequence[Any]:
        """The tuples, turned."""
        return list(zip(*solutions, strict=True)) or [()] * len(self._values)
