"""What every device that candidates are measured on can do."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from mapper.device_profile import DeviceProfile
from mapper.host_plan import HostPlan
from mapper.measurement import Outcome
from worker.measuring.request import MeasureRequest
from worker.measuring.settings import Deadlines, Protocol, Tolerance


@typing.runtime_checkable
class MeasuringDevice(typing.Protocol):
    """A device that measures candidates; one, several, recorded or null.

    Implementations are context managers and release what they hold on leaving, whatever is still
    being measured. A failing candidate is an :data:`Outcome`; only a failing *device* raises
    DeviceError, and contradictory arguments raise InputError.

    A candidate is measured while the caller waits (:meth:`measure`), or handed over with
    :meth:`submit` and taken back with :meth:`result`, by one thread. Devices that measure one
    candidate after the other give results in the order of the requests.
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
        deadlines: Deadlines = ...,
    ) -> Outcome:
        """Run and time ``plan`` on the workload; ``candidate`` is its id, for recordings."""
        ...

    @property
    def size(self) -> int:
        """How many candidates are worked on at once: more than that only wait."""
        ...

    @property
    def waiting(self) -> int:
        """How many candidates were handed over whose results were not taken."""
        ...

    def beside(self) -> AbstractContextManager[None]:
        """Held by whoever computes while candidates may be timed, a candidate's kernels say: where
        that would take cores from what is timed, it waits."""
        ...

    def submit(self, request: MeasureRequest) -> None:
        """Hand a candidate over; raises InputError for one that contradicts its workload."""
        ...

    def result(self, timeout_s: float) -> tuple[str, Outcome] | None:
        """Id and outcome of a candidate that is done; None if there is none within the time, and at
        once where none is waiting. DeviceError where the device failed: one candidate's result is
        lost with it."""
        ...

    def drop_queued(self) -> list[str]:
        """Take back what nobody has begun; the ids, in the order of the requests."""
        ...
