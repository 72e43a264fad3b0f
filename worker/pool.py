"""A pool of measuring children on one device: all build side by side, and run in turns."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from mapper.device_profile import DeviceProfile
from mapper.errors import DeviceError, InputError, Problem
from mapper.host_plan import HostPlan
from mapper.measurement import Outcome
from worker.measuring.child_process import MEASURING_CHILD, NOTHING_MORE
from worker.measuring.measuring_child import MeasuringChild, check_request
from worker.measuring.request import MeasureRequest
from worker.measuring.settings import (
    DEFAULT_PROTOCOL,
    DEFAULT_TOLERANCE,
    NO_DEADLINES,
    Deadlines,
    Protocol,
    Tolerance,
)
from worker.measuring.turns import beside
from worker.measuring.workloads import Workloads

#: A child that fails so often in a row is not used any more.
_MOST_FAILURES = 3
#: For threads whose children were killed.
_ENDING_S = 10.0

Found = tuple[str, Outcome | Exception]


@dataclass(frozen=True, slots=True)
class _Job:
    request: MeasureRequest
    replies: queue.SimpleQueue[Found]
    again: bool = False


class Pool:
    """Measures candidates with ``size`` children; a :class:`MeasuringDevice`.

    Children are started side by side when the pool is entered or first used, and the first that
    opens the device says what it is. Each builds on a core of its own; who runs has the device
    alone, and where turns are ``quiet``, as those on a processor should be, its cores too. A
    candidate that hangs or crashes takes its own child along, which is replaced; a child whose
    device fails leaves the work to the others. Results come in the order in which they are done.

    Closing kills every child, whatever it does. At most ``size`` outcomes' arrays are in memory;
    the workloads are on disk, once.
    """

    def __init__(
        self,
        device: str = "host",
        size: int = 2,
        *,
        quiet: bool = False,
        child_module: str = MEASURING_CHILD,
        environment: Mapping[str, str] = NOTHING_MORE,
        start_timeout_s: float = 120.0,
    ) -> None:
        if size < 1:
            raise InputError(Problem("size", "must be at least 1", found=str(size)))
        self._workloads = Workloads()
        self._turn = self._workloads.folder / "turn"
        self._turn.touch(mode=0o644)
        self._quiet = quiet
        self._children = [
            MeasuringChild(
                device,
                start_timeout_s=start_timeout_s,
                probe_timeout_s=start_timeout_s,
                child_module=child_module,
                environment=environment,
                workloads=self._workloads,
                turn=self._turn,
                quiet=quiet,
            )
            for _ in range(size)
        ]
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Found] = queue.SimpleQueue()
        self._waiting = 0
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._serving = size
        self._failure: DeviceError | None = None
        self._about: tuple[DeviceProfile, dict[str, str]] | None = None
        self._known = threading.Event()

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill every child, whatever it does, and remove every temporary file."""
        self._closing.set()
        for child in self._children:
            child.stop()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(_ENDING_S)
        for child in self._children:
            # One that cannot be killed keeps no other alive.
            with contextlib.suppress(DeviceError):
                child.close()
        self._fail(_closed())
        self._workloads.close()

    @property
    def size(self) -> int:
        """How many children there are."""
        return len(self._children)

    @property
    def waiting(self) -> int:
        """How many candidates were handed over whose results were not taken."""
        return self._waiting

    def beside(self) -> AbstractContextManager[None]:
        """Held by whoever computes while candidates may be timed; waits for one that is."""
        return beside(self._turn) if self._quiet else contextlib.nullcontext()

    @property
    def child_pids(self) -> tuple[int, ...]:
        """The process ids of the children that are there now."""
        pids = (child.child_pid for child in self._children)
        return tuple(pid for pid in pids if pid is not None)

    def profile(self) -> DeviceProfile:
        """The device's limits as its driver reports them; DeviceError if no child can open it."""
        return self._device()[0]

    def facts(self) -> dict[str, str]:
        """Driver, versions, clocks and machine as seen when the first child started."""
        return dict(self._device()[1])

    def _device(self) -> tuple[DeviceProfile, dict[str, str]]:
        self._start()
        self._known.wait()
        if self._about is None:
            assert self._failure is not None
            raise self._failure
        return self._about

    def upload_workload(
        self,
        key: str,
        inputs: Mapping[str, np.ndarray[Any, Any]],
        expected: np.ndarray[Any, Any],
    ) -> None:
        """Store inputs (of element types) and the reference for all children; InputError."""
        self._workloads.upload(key, inputs, expected)

    def drop_workload(self, key: str) -> None:
        """Remove a workload's files, of which no candidate may be waiting."""
        self._workloads.drop(key)

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
        """Measure ``plan`` with any child, after what was submitted before.

        Raises InputError for contradictory arguments and DeviceError when the *device* fails.
        """
        mine: queue.SimpleQueue[Found] = queue.SimpleQueue()
        self._put(
            MeasureRequest(plan, workload, candidate, tolerance, protocol, timeout_s, deadlines),
            mine,
        )
        found = mine.get()[1]
        if isinstance(found, Exception):
            raise found
        return found

    def submit(self, request: MeasureRequest) -> None:
        """Hand a candidate over; InputError, and DeviceError once every child has failed."""
        self._put(request, self._results)
        self._waiting += 1

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
        """Take back what no child has begun; the ids."""
        dropped, kept = list[str](), list[_Job | None]()
        with contextlib.suppress(queue.Empty):
            while True:
                job = self._jobs.get_nowait()
                if job is None or job.replies is not self._results:
                    kept.append(job)  # somebody waits for it
                else:
                    dropped.append(job.request.candidate)
        for job in kept:
            self._jobs.put(job)
        self._waiting -= len(dropped)
        return dropped

    def _put(self, request: MeasureRequest, replies: queue.SimpleQueue[Found]) -> None:
        check_request(self._workloads, request)
        self._start()
        with self._lock:
            if self._failure is not None:
                raise self._failure
            self._jobs.put(_Job(request, replies))

    def _start(self) -> None:
        with self._lock:
            if self._closing.is_set():
                raise _closed()
            if self._threads:
                return
            self._threads = [
                threading.Thread(target=self._serve, args=(child,), name="pool", daemon=True)
                for child in self._children
            ]
        for thread in self._threads:
            thread.start()

    # In a child's thread

    def _serve(self, child: MeasuringChild) -> None:
        try:
            # Opening a device takes a second: not when the first candidate comes.
            profile, facts = child.profile(), child.facts()
            with self._lock:
                self._about = self._about or (profile, facts)
            self._known.set()
            failures = 0
            while failures < _MOST_FAILURES and not child.quarantine_reason:
                job = self._jobs.get()
                if job is None:
                    return
                found = _found(child, job.request)
                failures = failures + 1 if isinstance(found, Exception) else 0
                if isinstance(found, DeviceError) and self._is_taken_over(job):
                    continue
                job.replies.put((job.request.candidate, found))
                if child.child_pid is None and not failures:
                    # Replaced while nobody waits for it.
                    child.profile()
            self._gone(DeviceError(Problem("device", "fails", found=child.quarantine_reason)))
        except DeviceError as error:
            self._gone(error)
        except Exception as error:  # no process can be started, say: nobody may wait for this one
            self._gone(DeviceError(Problem("device", "cannot be opened", found=repr(error)[:200])))

    def _is_taken_over(self, job: _Job) -> bool:
        """Whether another child gets the candidate of one whose device failed, once."""
        with self._lock:
            if self._serving < 2 or job.again or self._failure is not None:
                return False
            self._jobs.put(replace(job, again=True))
            return True

    def _gone(self, error: DeviceError) -> None:
        """A child gives up; the last one to do so answers for all that is still queued."""
        with self._lock:
            self._serving -= 1
            last = not self._serving
        if last:
            self._fail(error)

    def _fail(self, error: DeviceError) -> None:
        """From now on every candidate's result is this error, that of those queued too."""
        with self._lock:
            self._failure = self._failure or error
            with contextlib.suppress(queue.Empty):
                while True:
                    job = self._jobs.get_nowait()
                    if job is not None:
                        job.replies.put((job.request.candidate, self._failure))
        self._known.set()


def _closed() -> DeviceError:
    return DeviceError(Problem("device", "is closed"))


def _found(child: MeasuringChild, request: MeasureRequest) -> Outcome | Exception:
    try:
        return child.measure(
            request.plan,
            workload=request.workload,
            candidate=request.candidate,
            tolerance=request.tolerance,
            protocol=request.protocol,
            timeout_s=request.timeout_s,
            deadlines=request.deadlines,
        )
    except Exception as error:
        return error
