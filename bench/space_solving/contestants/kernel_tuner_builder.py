"""Kernel Tuner's ``Searchspace``, with its default framework and solver.

Constraints are strings, which it recommends and takes apart itself. ``max_threads`` and the names
of block sizes keep their defaults, so its own constraint on the block size is added: all
published spaces have it, or one that implies it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from bench.space_solving.contestants.problem import Problem

MAX_THREADS = 1024


class KernelTuner:
    """``kernel_tuner.searchspace.Searchspace``: solutions as a list of tuples and a dict."""

    def prepare(self, problem: Problem) -> None:
        """Import it; its dictionaries of values and lists of strings are made here."""
        self._module = import_module("kernel_tuner.searchspace")
        self._numpy_random: Any = import_module("numpy.random")
        self._values = {name: list(values) for name, values in problem.parameters.items()}
        self._constraints = list(problem.constraints)

    def construct(self) -> Any:
        """The search space."""
        return self._module.Searchspace(self._values, self._constraints, MAX_THREADS)

    def count(self) -> int:
        """It has no way to count but to construct."""
        return int(self.construct().size)

    def sample(self, number: int, seed: int) -> Any:
        """``get_random_sample``: without replacement, at most all."""
        self._numpy_random.seed(seed)
        space = self.construct()
        return space.get_random_sample(min(number, int(space.size)))

    def columns(self, solutions: Any) -> Sequence[Any]:
        """The tuples, turned."""
        rows = solutions if isinstance(solutions, list) else solutions.list
        return list(zip(*rows, strict=True)) or [()] * len(self._values)
