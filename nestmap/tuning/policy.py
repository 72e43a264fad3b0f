"""What every way to tune agrees on, in one process or on a farm: how long a candidate may take,
how it is timed, and which device it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from worker.measuring.settings import Protocol

#: Facts that say which device and software this is, and do not change from run to run.
_IDENTITY = (
    "device.name",
    "device.version",
    "device.kind",
    "device.compute_units",
    "device.target",
    "driver.version",
    "platform.name",
    "platform.version",
    "cpu.model",
    "cpu.cores_allowed",
)
INPUT_SEED = 0
TUNING_PROTOCOL = Protocol(slow_after_ms=200.0, budget_ms=1000.0)


@dataclass(frozen=True, slots=True)
class TimeoutPolicy:
    """How long one candidate may take, compiling and verifying included.

    ``factor`` times the best so far, within ``least_s`` and ``most_s``: what is that much
    slower is hopeless.
    """

    least_s: float = 10.0
    most_s: float = 60.0
    factor: float = 20.0

    def timeout_s(self, best_ms: float | None) -> float:
        """The time for the next candidate."""
        if best_ms is None:
            return self.most_s
        return min(self.most_s, max(self.least_s, self.factor * best_ms / 1e3))


DEFAULT_TIMEOUTS = TimeoutPolicy()


def device_identity(facts: Mapping[str, str]) -> dict[str, str]:
    """The facts that tell devices and their software apart."""
    return {key: facts[key] for key in _IDENTITY if key in facts}
