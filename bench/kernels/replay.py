"""Kernels back to back: the time of one run while the device never waits for the host.

NVIDIA's driver reads 5 us from an event of an empty kernel, and a launch costs the host as much; a
CUDA graph has neither. So runs are queued up behind a kernel that takes longer than that, and the
time of twice as many of them less the time of as many is what as many take.
"""

from __future__ import annotations

import time

import numpy as np

from mapper.measurement import Timeout
from nestmap.tuning.measuring.span import SpanPlan
from worker.measuring.driver_errors import PlanFailure, plan_failure
from worker.measuring.loaded_plan import Session

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
_WORTH_MS = 1.0
_FIRST_STEPS = 200_000
#: The blocker gets longer until it outlasts the queueing up, up to this.
_LONGEST_BLOCKER_S = 0.02


class Replay:
    """Times plans of one session back to back; its methods raise :class:`PlanFailure`."""

    def __init__(self, session: Session) -> None:
        import pyopencl as cl

        # A queue of its own: one that keeps the times of events adds to every launch.
        self._queue = cl.CommandQueue(session.context)
        self._blocker = cl.Program(session.context, _BLOCKER).build().blocker
        self._buffer = cl.Buffer(session.context, cl.mem_flags.READ_WRITE, 4)
        self._steps = _FIRST_STEPS

    def times_ms(self, plan: SpanPlan, run_ms: float, count: int) -> list[float]:
        """Milliseconds of one run of everything that is not prepared, ``count`` times.

        ``run_ms``, what a run takes by its events, says how many are worth a measurement.
        """
        most = max(1, _MOST_LAUNCHES // (2 * plan.launches_of_a_run))
        runs = min(most, max(2, round(_WORTH_MS / max(run_ms, 1e-3))))
        return [self._time_ms(plan, runs) for _ in range(count)]

    def _time_ms(self, plan: SpanPlan, runs: int) -> float:
        while True:
            blocked_s = self._after_blocker(plan, 0)[1]
            queueing_s, twice_s = self._after_blocker(plan, 2 * runs)
            if queueing_s < 0.8 * blocked_s:
                once_s = self._after_blocker(plan, runs)[1]
                return (twice_s - once_s) / runs * 1e3
            if blocked_s < _LONGEST_BLOCKER_S:
                self._steps *= 2
            elif runs > 1:
                # The driver has no room for so many, and lets the host wait.
                runs //= 2
            else:
                raise PlanFailure(Timeout(blocked_s))

    def _after_blocker(self, plan: SpanPlan, runs: int) -> tuple[float, float]:
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
