"""What every device that candidates are measured on can do."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any

import numpy as np

from mapper.device_profile import DeviceProfile
from mapper.host_plan import HostPlan
from mapper.measurement import Outcome
from worker.measuring.settings import Protocol, Tolerance


@typing.runtime_checkable
class MeasuringDevice(typing.Protocol):
    """A device that measures candidates; real, recorded or null.

    Implementations are context managers and release what they hold on leaving. A failing
    candidate is an :data:`Outcome`; only a failing *device* raises DeviceError, and
    contradictory arguments raise InputError.
    """

    def __enter__(self) -> typing.Self: ...

    def __exit__(self, *exception: object) -> None: ...

    def profile(self) -> DeviceProfile:
        """The limits that candidates must respect."""
        ...

    def facts(self) -> dict[str, str]:
        """What identifies the device and its state, as texts."""
        ...

    def upload_workload(
        self,
        key: str,
        inputs: Mapping[str, np.ndarray[Any, Any]],
        expected: np.ndarray[Any, Any],
    ) -> None:
        """Make inputs (float32) and the reference output known under ``key``."""
        ...

    def measure(
        self,
        plan: HostPlan,
        *,
        workload: str,
        candidate: str = "",
        tolerance: Tolerance = ...,
        protocol: Protocol = ...,
        timeout_s: float = ...,
    ) -> Outcome:
        """Run and time ``plan`` on the workload; ``candidate`` is its id, for recordings."""
        ...
