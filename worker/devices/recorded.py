"""A device that replays recorded outcomes, so that searches are tested without hardware."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from mapper.device_profile import DeviceProfile
from mapper.errors import DeviceError, Problem
from mapper.host_plan import HostPlan
from mapper.measurement import Outcome
from worker.devices.queued import Inline
from worker.measuring.checks import check_workload
from worker.measuring.settings import (
    DEFAULT_PROTOCOL,
    DEFAULT_TOLERANCE,
    NO_DEADLINES,
    Deadlines,
    Protocol,
    Tolerance,
)


class RecordedDevice(Inline):
    """Replays the outcome recorded under a candidate's id, whatever the plan says."""

    def __init__(
        self,
        outcomes: Mapping[str, Outcome],
        profile: DeviceProfile,
        facts: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._outcomes = dict(outcomes)
        self._profile = profile
        self._facts = dict(facts or {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def profile(self) -> DeviceProfile:
        """The limits of the device that the outcomes were recorded on."""
        return self._profile

    def facts(self) -> dict[str, str]:
        """The recorded facts, marked as a replay."""
        return {**self._facts, "device.kind": "recorded"}

    def upload_workload(
        self,
        key: str,
        inputs: Mapping[str, np.ndarray[Any, Any]],
        expected: np.ndarray[Any, Any],
    ) -> None:
        """Check the workload only: nothing runs here. Raises InputError."""
        del key
        check_workload(inputs, expected)

    def measure(
        self,
        plan: HostPlan,
        *,
        workload: str,
        candidate: str = "",
        tolerance: Tolerance = DEFAULT_TOLERANCE,
        protocol: Protocol = DEFAULT_PROTOCOL,
        timeout_s: float = 60.0,
        deadlines: Deadlines = NO_DEADLINES,
    ) -> Outcome:
        """The recorded outcome; raises DeviceError for a candidate without one."""
        del plan, workload, tolerance, protocol, timeout_s, deadlines
        outcome = self._outcomes.get(candidate)
        if outcome is None:
            raise DeviceError(
                Problem(
                    "candidate",
                    "nothing was recorded for this candidate",
                    found=candidate or "no candidate id",
                    allowed=f"one of {len(self._outcomes)} recorded ids",
                )
            )
        return outcome
