"""A request to measure a candidate, as every measuring device takes it."""

from __future__ import annotations

from dataclasses import dataclass

from mapper.host_plan import HostPlan
from worker.measuring.settings import (
    DEFAULT_PROTOCOL,
    DEFAULT_TOLERANCE,
    NO_DEADLINES,
    Deadlines,
    Protocol,
    Tolerance,
)


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    """A candidate that a device is to measure, on a workload that it knows by its key.

    ``timeout_s`` bounds all stages together but waiting for others, ``deadlines`` each of them.
    """

    plan: HostPlan
    workload: str
    candidate: str = ""
    tolerance: Tolerance = DEFAULT_TOLERANCE
    protocol: Protocol = DEFAULT_PROTOCOL
    timeout_s: float = 60.0
    deadlines: Deadlines = NO_DEADLINES
