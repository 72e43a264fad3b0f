"""A plan timed as its user sees it: from the first start to the last end of its launches."""

from __future__ import annotations

import time
from statistics import median, quantiles
from typing import Any

from mapper.host_plan import HostPlan, Launch
from worker.measuring.driver_errors import plan_failure
from worker.measuring.loaded_plan import LoadedPlan, Session
from worker.measuring.unobserved import launch_unobserved


def prepared_bytes(plan: HostPlan) -> int:
    """Bytes of the buffers that prepared launches write for later: packed weights."""
    made: set[str] = set()
    for launch in plan.launches:
        if launch.prepared:
            made |= set(launch.arguments)
    return sum(
        buffer.bytes
        for buffer in plan.buffers
        if buffer.name in made and buffer.role.value not in ("input", "output")
    )


def scratch_bytes(plan: HostPlan) -> int:
    """Bytes that a run needs beside input, weights, packed weights and output."""
    return plan.extra_bytes - prepared_bytes(plan)


class SpanPlan(LoadedPlan):
    """A loaded plan whose prepared launches run once and whose others are timed together."""

    def __init__(self, session: Session, plan: HostPlan) -> None:
        super().__init__(session, plan)
        # Between two launches nothing but the launch itself may take time on the host.
        for launch, kernel in self._launches:
            kernel.set_args(*(self._buffers[name] for name in launch.arguments))
        self._before = [pair for pair in self._launches if pair[0].prepared]
        self._timed = [pair for pair in self._launches if not pair[0].prepared]

    def prepare(self) -> None:
        """Run the prepared launches; inputs must be filled. Raises PlanFailure."""
        self._enqueue(self._before)

    def span(self) -> tuple[int, float]:
        """Launch everything else once: device time in ns from the first start to the last
        end, and seconds of wall time until all was done. Raises PlanFailure."""
        return self._enqueue(self._timed)

    @property
    def launches_of_a_run(self) -> int:
        """Launches that are not prepared."""
        return len(self._timed)

    def enqueue_run(self, queue: Any) -> None:
        """Put everything else into a queue of the same context, and return at once."""
        for launch, kernel in self._timed:
            launch_unobserved(queue, kernel, launch.global_size, launch.local_size)

    def _enqueue(self, pairs: list[tuple[Launch, Any]]) -> tuple[int, float]:
        import pyopencl as cl

        queue = self._session.queue
        events: list[cl.Event] = []
        current = ""
        started = time.perf_counter()
        try:
            for launch, kernel in pairs:
                current = launch.kernel
                events.append(
                    cl.enqueue_nd_range_kernel(queue, kernel, launch.global_size, launch.local_size)
                )
            queue.finish()
            wall_s = time.perf_counter() - started
            if not events:
                return 0, wall_s
            return events[-1].profile.end - events[0].profile.start, wall_s
        except cl.Error as error:
            raise plan_failure(error, f"running kernel {current}", running=True) from error


def interquartile(values: list[int] | list[float]) -> float:
    """The interquartile range over the median; 0 of fewer than four values."""
    if len(values) < 4:
        return 0.0
    low, _, high = quantiles(values, n=4)
    return (high - low) / max(median(values), 1e-12)
