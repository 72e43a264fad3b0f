"""What a search is to find: the front, the fastest, or the fastest within some memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mapper.errors import InputError, Problem

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fastest:
    """The least time, whatever it allocates."""


@dataclass(frozen=True, slots=True)
class FastestWithin:
    """The least time among those that allocate at most ``bytes`` (the epsilon-constraint
    method of two objectives)."""

    bytes: int

    def __post_init__(self) -> None:
        if self.bytes < 0:
            raise InputError(Problem("bytes", "must not be negative", str(self.bytes)))


@dataclass(frozen=True, slots=True)
class Front:
    """Every trade of time for memory that nothing beats in both."""


Goal = Fastest | FastestWithin | Front


def admitted(goal: Goal, memory_bytes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which candidates a goal admits, by what they allocate."""
    if isinstance(goal, FastestWithin):
        return memory_bytes <= goal.bytes
    return np.ones(len(memory_bytes), np.bool_)


def memory_scale(goal: Goal, memory_bytes: NDArray[np.int64]) -> Floats:
    """The second objective: the logarithm of the bytes for a front, else nothing to weigh."""
    if isinstance(goal, Front):
        return np.log1p(memory_bytes.astype(np.float64))
    return np.zeros(len(memory_bytes))
