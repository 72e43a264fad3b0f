"""How long to wait after a failed call: longer each time, never in step with other boards."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

FIRST_S = 0.5
MOST_S = 60.0
#: So many failures in a row open the circuit: nothing is called until a trial call succeeds.
OPEN_AFTER = 4


class Patience:
    """Exponential waits with full jitter and a circuit breaker; one for each server.

    Closed, every call may go out. After a failure calls wait; after OPEN_AFTER in a row the
    circuit is open: between waits a single trial goes out, and its success closes it.
    """

    def __init__(
        self,
        *,
        first_s: float = FIRST_S,
        most_s: float = MOST_S,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._clock = clock
        self._chance = chance
        self._failures = 0
        self._ready_at = 0.0

    @property
    def failures(self) -> int:
        """Failures in a row."""
        return self._failures

    @property
    def is_open(self) -> bool:
        """Whether the server counts as unreachable."""
        return self._failures >= OPEN_AFTER

    def wait_s(self) -> float:
        """Seconds until the next call may go out."""
        return max(0.0, self._ready_at - self._clock())

    def succeeded(self) -> None:
        """A call got an answer that means something."""
        self._failures = 0
        self._ready_at = 0.0

    def failed(self, retry_after_s: float | None = None) -> float:
        """A call failed: seconds to wait, at least what the server asked for.

        A server that asks all boards to come back at one moment gets them spread behind it.
        """
        self._failures += 1
        ceiling = min(self._most_s, self._first_s * 2.0 ** min(self._failures - 1, 30))
        wait = ceiling * (0.1 + 0.9 * self._chance())
        if retry_after_s is not None:
            wait += retry_after_s
        self._ready_at = self._clock() + wait
        return wait
