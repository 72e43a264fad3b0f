"""Where the random choices come from that make a case.

A generator asks for integers in a range and nothing else. So the same generator runs from a
seed, from a recorded list of integers, or under a tool that shrinks such lists, and 0 is
always the simplest choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol, TypeVar

T = TypeVar("T")


class Source(Protocol):
    """A source of integers."""

    def integer(self, high: int) -> int:
        """An integer from 0 to ``high``, which is at least 1."""
        ...


class RandomSource:
    """Integers from a seed, kept in ``taken`` in the order in which they were asked for."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.taken: list[int] = []

    def integer(self, high: int) -> int:
        """A uniform integer."""
        value = self._random.randint(0, high)
        self.taken.append(value)
        return value


class Chooser:
    """Choices of every kind from a source of integers."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def number(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``; the lower one is the simpler."""
        return low if low == high else low + self._source.integer(high - low)

    def pick(self, choices: Sequence[T]) -> T:
        """One of the choices, the simplest first."""
        return choices[self.number(0, len(choices) - 1)]

    def chance(self, percent: int) -> bool:
        """True in so many of a hundred cases; False is the simpler."""
        return self.number(0, 99) >= 100 - percent
