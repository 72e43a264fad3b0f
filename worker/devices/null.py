"""A device without hardware: every plan is timed, with a time that its text determines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, Problem
from mapper.host_plan import HostPlan
from mapper.measurement import Outcome, Timed
from worker.devices.queued import Inline
from worker.measuring.checks import check_plan, check_workload
from worker.measuring.request import MeasureRequest
from worker.measuring.settings import (
    DEFAULT_PROTOCOL,
    DEFAULT_TOLERANCE,
    NO_DEADLINES,
    Deadlines,
    Protocol,
    Tolerance,
)

NULL_PROFILE = DeviceProfile(
    name="null",
    max_work_group_size=1024,
    max_work_item_sizes=(1024, 1024, 1024),
    local_bytes=32 * 1024,
    private_bytes=4096,
    max_alloc_bytes=2**30,
    global_bytes=2**32,
    compute_units=1,
    half_precision=True,
    source="made up: no hardware stands behind it",
)


def plan_digest(plan: HostPlan) -> str:
    """SHA-256 of a plan's canonical JSON text, as 64 hexadecimal digits."""
    text = json.dumps(plan.to_json(), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class NullDevice(Inline):
    """Checks plans as a real device does, runs nothing and answers a time between 1 and 100 ms.

    The time depends on the plan's text alone, so that searches over it are repeatable on
    any machine.
    """

    def __init__(self, profile: DeviceProfile = NULL_PROFILE) -> None:
        super().__init__()
        self._profile = profile
        self._shapes: dict[str, dict[str, tuple[int, ...]]] = {}
        self._types: dict[str, dict[str, np.dtype[Any]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._shapes.clear()
        self._types.clear()

    def profile(self) -> DeviceProfile:
        """The made-up limits."""
        return self._profile

    def facts(self) -> dict[str, str]:
        """Says that times are synthetic."""
        return {"device.name": self._profile.name, "device.kind": "null"}

    def upload_workload(
        self,
        key: str,
        inputs: Mapping[str, np.ndarray[Any, Any]],
        expected: np.ndarray[Any, Any],
    ) -> None:
        """Check the workload and remember its shapes; raises InputError."""
        check_workload(inputs, expected)
        self._shapes[key] = {name: array.shape for name, array in inputs.items()}
        self._types[key] = {name: array.dtype for name, array in inputs.items()}

    def check(self, request: MeasureRequest) -> None:
        """Raise InputError for a plan that contradicts its workload."""
        self._require(request.workload, request.plan)

    def _require(self, workload: str, plan: HostPlan) -> None:
        if workload not in self._shapes:
            raise InputError(Problem("workload", "was never uploaded", found=workload))
        check_plan(plan, self._shapes[workload], self._types[workload])

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
        """Always Timed; raises InputError for a plan that contradicts its workload."""
        del candidate, tolerance, timeout_s, deadlines
        self._require(workload, plan)
        digest = hashlib.sha256(plan_digest(plan).encode()).digest()
        base_ns = 1_000_000 + int.from_bytes(digest[:8]) % 99_000_000
        # A spread below one per cent, so that medians and spreads are not trivial.
        trials = tuple(
            base_ns + base_ns * digest[8 + index % 24] // 25_600
            for index in range(protocol.repetitions)
        )
        return Timed(trials, 0.0, 0.0, self.facts())
