"""Plain NumPy, as a user with an hour would write it: brute force, and join and filter.

Both give one array a parameter. Operands that a guard excludes (``b != 0 and a % b == 0``) are
evaluated all the same, so division warnings are off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.random

from bench.space_solving.contestants.numpy_functions import array_function
from bench.space_solving.contestants.problem import NotMeasured, Problem

# Combinations looked at together: 16 MiB for an array of truth values.
CHUNK = 2**24
# Beyond this many combinations brute force would take minutes.
MOST_COMBINATIONS = 10**10


class _Columns:
    """What both share: constraints as array functions, samples from the columns."""

    def prepare(self, problem: Problem) -> None:
        """Compile the constraints and hold the values as arrays."""
        self._problem = problem
        self._values = {name: np.array(values) for name, values in problem.parameters.items()}
        self._constraints: list[tuple[tuple[str, ...], Callable[..., Any]]] = [
            (names, array_function(text, names))
            for text, names in zip(problem.constraints, problem.constraint_names, strict=True)
        ]

    def construct(self) -> dict[str, Any]:
        """All solutions, one array a parameter."""
        raise NotImplementedError

    def count(self) -> int:
        """The length of what is constructed."""
        return len(next(iter(self.construct().values())))

    def sample(self, number: int, seed: int) -> dict[str, Any]:
        """Of all solutions, with replacement."""
        columns = self.construct()
        chosen = numpy.random.default_rng(seed).integers(
            len(columns[self._problem.names[0]]), size=number
        )
        return {name: column[chosen] for name, column in columns.items()}

    def columns(self, solutions: Any) -> Sequence[Any]:
        """The arrays, in order."""
        return [solutions[name] for name in self._problem.names]


class NumpyJoin(_Columns):
    """Parameter by parameter in the document's order: every row with every value, then filter
    by the constraints that can be decided now."""

    def construct(self) -> dict[str, Any]:
        """All solutions, one array a parameter."""
        columns: dict[str, Any] = {}
        length = 1
        with np.errstate(all="ignore"):
            for name, values in self._values.items():
                columns = {
                    other: np.repeat(column, len(values)) for other, column in columns.items()
                }
                columns[name] = np.tile(values, length)
                length *= len(values)
                for index in self._problem.decided_by[name]:
                    names, holds = self._constraints[index]
                    kept = np.flatnonzero(
                        np.broadcast_to(holds(*(columns[other] for other in names)), (length,))
                    )
                    if len(kept) < length:
                        columns = {other: column[kept] for other, column in columns.items()}
                        length = len(kept)
        return columns


class NumpyBruteForce(_Columns):
    """All combinations against all constraints on an open grid, in chunks of the first
    parameters."""

    def prepare(self, problem: Problem) -> None:
        """As above, and refuse what would take minutes."""
        total = math.prod(len(values) for values in problem.parameters.values())
        if total > MOST_COMBINATIONS:
            raise NotMeasured(f"{total:.1e} combinations")
        super().prepare(problem)

    def _chunks(self) -> Iterator[tuple[dict[str, Any], Any]]:
        """Values of the outer parameters, and the truth of all constraints on the inner grid."""
        names = self._problem.names
        split = len(names)
        size = 1
        while split > 0 and size * len(self._values[names[split - 1]]) <= CHUNK:
            split -= 1
            size *= len(self._values[names[split]])
        outer, inner = names[:split], names[split:]
        shape = tuple(len(self._values[name]) for name in inner)
        # Not np.ix_, which takes truth values for masks.
        grid = {
            name: self._values[name].reshape([-1 if i == axis else 1 for i in range(len(inner))])
            for axis, name in enumerate(inner)
        }
        with np.errstate(all="ignore"):
            for chosen in _product([self._values[name] for name in outer]):
                known = dict(zip(outer, chosen, strict=True))
                scope = {**grid, **known}
                truth = np.ones(shape, dtype=np.bool_)
                for used, holds in self._constraints:
                    truth &= holds(*(scope[name] for name in used))
                yield known, truth

    def construct(self) -> dict[str, Any]:
        """All solutions, one array a parameter."""
        names = self._problem.names
        parts: dict[str, list[Any]] = {name: [] for name in names}
        for known, truth in self._chunks():
            places = np.nonzero(truth)
            inner = names[len(known) :]
            for name, place in zip(inner, places, strict=True):
                parts[name].append(self._values[name][place])
            found = int(np.count_nonzero(truth)) if not places else len(places[0])
            for name, value in known.items():
                parts[name].append(np.full(found, value))
        return {name: np.concatenate(arrays) for name, arrays in parts.items()}

    def count(self) -> int:
        """Truths, added up."""
        return sum(int(np.count_nonzero(truth)) for _, truth in self._chunks())


def _product(columns: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    if not columns:
        yield ()
        return
    for value in columns[0]:
        for rest in _product(columns[1:]):
            yield (value, *rest)
