"""What every way to tune agrees on, in one process or on a farm: how long a candidate may take,
how it is timed, and which device it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from worker.measuring.settings import Deadlines, Protocol

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
#: A candidate that takes so many times the best is run once only.
HOPELESS = 4.0
#: The verified run, warm-up and repetitions of one that is nearly hopeless, in times of the best.
_RUNS_OF_THE_BEST = 15 * HOPELESS
TUNING_PROTOCOL = Protocol(slow_after_ms=200.0, budget_ms=1000.0)


@dataclass(frozen=True, slots=True)
class TimeoutPolicy:
    """How long one candidate may take, compiling and verifying included.

    ``factor`` times the best so far, within ``least_s`` and ``most_s``: what is that much
    slower is hopeless. Of this the building may take ``building_s``, and all runs together
    ``least_running_s`` or, if that is more, so many times the best as a candidate needs that is
    only just worth repeating.
    """

    least_s: float = 10.0
    most_s: float = 60.0
    factor: float = 20.0
    building_s: float = math.inf
    least_running_s: float = math.inf

    def timeout_s(self, best_ms: float | None) -> float:
        """The time for the next candidate."""
        if best_ms is None:
            return self.most_s
        return min(self.most_s, max(self.least_s, self.factor * best_ms / 1e3))

    def deadlines(self, best_ms: float | None) -> Deadlines:
        """What each stage of the next candidate may take."""
        if best_ms is None:
            return Deadlines(building_s=self.building_s)
        running_s = max(self.least_running_s, _RUNS_OF_THE_BEST * best_ms / 1e3)
        return Deadlines(building_s=self.building_s, running_s=running_s)


#: Of boards, which compile slowly and may be busy.
DEFAULT_TIMEOUTS = TimeoutPolicy()
#: Of a device at hand, whose runs are timed apart from what builds them.
LOCAL_TIMEOUTS = TimeoutPolicy(least_s=20.0, most_s=30.0, building_s=20.0, least_running_s=1.0)


def device_identity(facts: Mapping[str, str]) -> dict[str, str]:
    """The facts that tell devices and their software apart."""
    return {key: facts[key] for key in _IDENTITY if key in facts}
