"""Kernels back to back: the time of one run while the device never waits for the host.

Below some 15 us the events of a launch measure the driver: NVIDIA's reads 5 us from one of an empty
kernel, and a launch costs the host as much. So runs are queued up without events behind a kernel
that takes longer than that, and the time of twice as many of them less the time of as many is what
as many take.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from worker.measuring.driver_errors import plan_failure
from worker.measuring.loaded_plan import LoadedPlan, Session

#: Runs that take longer by their events are not measured back to back: the driver's share of them
#: is below a third (4.5 to 6.3 us of an empty kernel on an H200).
WORTH_BELOW_NS = 15_000
_BLOCKER = """
__kernel void blocker(__global float *x, int steps)
{
    float s = x[0];
    for (int i = 0; i < steps; ++i)
        s = s * 1.0001f + 0.5f;
    x[0] = s;
}
"""
#: Launches in the queue at once.
_MOST_LAUNCHES = 256
#: What the runs of one measurement should take together.
_WORTH_NS = 1_000_000
_FIRST_STEPS = 200_000
#: The blocker gets longer until it outlasts the queueing up, up to this.
_LONGEST_BLOCKER_S = 0.02


class BackToBack:
    """Times loaded plans of one session; it keeps a queue and a kernel of its own there."""

    def __init__(self, session: Session) -> None:
        """Raises PlanFailure where the driver does not build the kernel that runs wait behind."""
        import pyopencl as cl

        try:
            # A queue of its own: one that keeps the times of events adds to every launch.
            self._queue: Any = cl.CommandQueue(session.context)
            self._blocker: Any = cl.Program(session.context, _BLOCKER).build().blocker
            self._buffer: Any = cl.Buffer(session.context, cl.mem_flags.READ_WRITE, 4)
            cl.enqueue_fill_buffer(self._queue, self._buffer, np.ones(1, np.float32), 0, 4)
        except cl.Error as error:
            raise plan_failure(error, "building the kernel that runs wait behind") from error
        self._steps = _FIRST_STEPS

    def run_ns(self, plan: LoadedPlan, by_events_ns: int) -> float | None:
        """Nanoseconds of one run of a plan that has run before; None where the host cannot queue
        runs up as quickly as the device does them. Raises PlanFailure.

        ``by_events_ns``, what a run takes by its events, says how many are worth a measurement.
        """
        most = max(1, _MOST_LAUNCHES // (2 * plan.launches_of_a_run))
        runs = min(most, max(2, round(_WORTH_NS / max(by_events_ns, 1000))))
        while True:
            blocked_s = self._after_blocker(plan, 0)[1]
            queueing_s, twice_s = self._after_blocker(plan, 2 * runs)
            if queueing_s < 0.8 * blocked_s:
                once_s = self._after_blocker(plan, runs)[1]
                # What another process does meanwhile may make the longer one the quicker one.
                return (twice_s - once_s) / runs * 1e9 if twice_s > once_s else None
            if blocked_s < _LONGEST_BLOCKER_S:
                self._steps *= 2
            elif runs > 1:
                # The driver has no room for so many, and lets the host wait.
                runs //= 2
            else:
                return None

    def _after_blocker(self, plan: LoadedPlan, runs: int) -> tuple[float, float]:
        """Seconds until the blocker and the runs were queued, and until all were done."""
        import pyopencl as cl

        try:
            self._blocker.set_args(self._buffer, np.int32(self._steps))
            self._queue.finish()
            started = time.perf_counter()
            cl.enqueue_nd_range_kernel(self._queue, self._blocker, (1,), (1,))
            self._queue.flush()
            for _ in range(runs):
                plan.enqueue_run(self._queue)
            queued = time.perf_counter()
            self._queue.finish()
            return queued - started, time.perf_counter() - started
        except cl.Error as error:
            raise plan_failure(error, "running kernels back to back", running=True) from error
