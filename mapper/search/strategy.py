"""What a search strategy is: it is asked for a batch of candidates and told what became of them.

A strategy depends on its candidates, its seed and what it was told, in that order, on nothing
else: no clock, no device. So a search is resumed by asking a new strategy with the same seed and
telling it what is stored, until nothing asked for is stored any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mapper.errors import InputError, Problem

#: Values in the order of the candidates' variables.
Choice = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a strategy is told of a candidate.

    ``time_ms`` is None where it failed (any way: a search must avoid it). ``memory_bytes`` is
    exact and known before measuring; 0 where it plays no part. ``noise`` is the standard error
    of the time over the time.
    """

    time_ms: float | None
    memory_bytes: int = 0
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.time_ms is not None and not self.time_ms > 0:
            raise InputError(Problem("time_ms", "must be positive", str(self.time_ms)))
        if self.memory_bytes < 0 or not self.noise >= 0:
            found = f"{self.memory_bytes} bytes, noise {self.noise}"
            raise InputError(Problem("outcome", "must not be negative", found))


class Strategy(Protocol):
    """The choice of candidates; ``ask`` and ``tell`` in any order, in any batches."""

    def ask(self, count: int) -> list[Choice]:
        """Up to ``count`` candidates, none of them ever asked before or told; fewer only if
        there are no more."""
        ...

    def tell(self, told: Sequence[tuple[Choice, Outcome]]) -> None:
        """What became of candidates: of its own, or of others (records, an earlier run)."""
        ...
