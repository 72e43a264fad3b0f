"""The asynchronous half of devices that measure one candidate after the other."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, cast

from mapper.measurement import Outcome

if TYPE_CHECKING:  # devices are made of what is here, and requests lie beside them
    from worker.devices.interface import MeasuringDevice
    from worker.measuring.request import MeasureRequest

#: For a measurement under way when its device closes, which ends it.
_ENDING_S = 10.0


class _OneByOne:
    """What both ways have in common; a device's ``check`` and ``measure`` do the work."""

    @property
    def size(self) -> int:
        """One: the next candidate is begun when this one is done."""
        return 1

    def beside(self) -> AbstractContextManager[None]:
        """Nothing is waited for: nobody is asked for more while the one candidate is measured."""
        return contextlib.nullcontext()

    def check(self, request: MeasureRequest) -> None:
        """Raise InputError for a request that contradicts itself or its workload."""

    def _measured(self, request: MeasureRequest) -> Outcome:
        return cast("MeasuringDevice", self).measure(
            request.plan,
            workload=request.workload,
            candidate=request.candidate,
            tolerance=request.tolerance,
            protocol=request.protocol,
            timeout_s=request.timeout_s,
            deadlines=request.deadlines,
        )


class Inline(_OneByOne):
    """Measures when a result is asked for: for devices that answer at once, and always alike."""

    def __init__(self) -> None:
        self._queued: deque[MeasureRequest] = deque()

    @property
    def waiting(self) -> int:
        """How many candidates were handed over whose results were not taken."""
        return len(self._queued)

    def submit(self, request: MeasureRequest) -> None:
        """Hand a candidate over; raises InputError for one that contradicts its workload."""
        self.check(request)
        self._queued.append(request)

    def result(self, timeout_s: float) -> tuple[str, Outcome] | None:
        """Measure the next candidate; None if there is none. DeviceError."""
        del timeout_s
        if not self._queued:
            return None
        request = self._queued.popleft()
        return request.candidate, self._measured(request)

    def drop_queued(self) -> list[str]:
        """Take back what has not been measured; the ids."""
        dropped = [request.candidate for request in self._queued]
        self._queued.clear()
        return dropped


class Queued(_OneByOne):
    """Measures in a thread, which is started by the first request; :meth:`end_queue` ends it."""

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[MeasureRequest | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[tuple[str, Outcome | Exception]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """How many candidates were handed over whose results were not taken."""
        return self._waiting

    def submit(self, request: MeasureRequest) -> None:
        """Hand a candidate over; raises InputError for one that contradicts its workload."""
        self.check(request)
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="measuring", daemon=True)
            self._thread.start()
        self._waiting += 1
        self._requests.put(request)

    def result(self, timeout_s: float) -> tuple[str, Outcome] | None:
        """The next candidate that is done; None if none is within the time. DeviceError."""
        if not self._waiting:
            return None
        try:
            candidate, found = self._results.get(timeout=max(timeout_s, 0.001))
        except queue.Empty:
            return None
        self._waiting -= 1
        if isinstance(found, Exception):
            raise found
        return candidate, found

    def drop_queued(self) -> list[str]:
        """Take back what the thread has not begun; the ids."""
        dropped: list[str] = []
        with contextlib.suppress(queue.Empty):
            while (request := self._requests.get_nowait()) is not None:
                dropped.append(request.candidate)
        self._waiting -= len(dropped)
        return dropped

    def end_queue(self) -> None:
        """End the thread; what it measures should end at once. What is done can still be taken."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self.drop_queued()
            self._requests.put(None)
            thread.join(_ENDING_S)

    def _serve(self) -> None:
        while (request := self._requests.get()) is not None:
            found: Outcome | Exception
            try:
                found = self._measured(request)
            except Exception as error:
                found = error
            self._results.put((request.candidate, found))
