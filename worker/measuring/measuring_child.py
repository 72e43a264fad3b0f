"""The OpenCL measuring device: one warm child process, replaced whenever it goes bad."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from mapper.device_profile import DeviceProfile
from mapper.errors import DeviceError, InputError, Problem
from mapper.host_plan import HostPlan
from mapper.measurement import Crash, Outcome, Timed, Timeout
from worker.devices.queued import Queued
from worker.measuring.child_process import (
    MEASURING_CHILD,
    NOTHING_MORE,
    ChildDied,
    ChildProcess,
    ChildTimedOut,
)
from worker.measuring.golden import GoldenKernel, golden_kernel
from worker.measuring.request import MeasureRequest
from worker.measuring.settings import (
    DEFAULT_PROTOCOL,
    DEFAULT_TOLERANCE,
    NO_DEADLINES,
    STAGES,
    Deadlines,
    Protocol,
    Tolerance,
)
from worker.measuring.wire import BadMessage, outcome_from_json
from worker.measuring.workloads import StoredWorkload, Workloads

_GOLDEN_PROTOCOL = Protocol(warmup=0, repetitions=1, max_repetitions=1)


class MeasuringChild(Queued):
    """Measures candidates on an OpenCL device in a child process; a context manager.

    The child starts at the first use and stays warm. It is killed with its whole process
    group when a candidate passes its deadline, and replaced after every death; a fresh child
    must run the golden kernel before it gets a candidate. If it cannot, ``recovery`` (for
    instance a driver reload) is called once; if that does not help the device is quarantined
    and every further call raises DeviceError with the reason. ``child_module`` is run in
    place of the plain measuring child, under limits of its own for instance.

    Several children may share ``workloads``, which whoever made them closes, and one device: with
    a file as ``turn`` each builds when it likes, and runs when no other does; where turns are
    ``quiet`` it does not build while another runs.

    Safe to share between threads: calls wait for each other, but :meth:`interrupt`, :meth:`stop`
    and :meth:`close` for nobody.
    """

    def __init__(
        self,
        device: str = "host",
        *,
        golden: GoldenKernel | None = None,
        recovery: Callable[[], None] | None = None,
        start_timeout_s: float = 60.0,
        probe_timeout_s: float = 60.0,
        child_module: str = MEASURING_CHILD,
        environment: Mapping[str, str] = NOTHING_MORE,
        workloads: Workloads | None = None,
        turn: Path | None = None,
        quiet: bool = False,
    ) -> None:
        super().__init__()
        self._device = device
        self._golden = golden or golden_kernel()
        self._recovery = recovery
        self._start_timeout_s = start_timeout_s
        self._probe_timeout_s = probe_timeout_s
        self._child_module = child_module
        self._environment = environment
        self._turn, self._quiet = turn, quiet
        self._own_workloads = workloads is None
        self._workloads = workloads or Workloads()
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._interrupted = threading.Event()
        self._running = False
        self._child: ChildProcess | None = None
        self._profile: DeviceProfile | None = None
        self._facts: dict[str, str] = {}
        self._quarantine = ""
        self.starts = 0
        self._golden_workload = self._workloads.store(self._golden.inputs, self._golden.expected)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the child, whatever it does, and remove every temporary file."""
        self.stop()
        self.end_queue()
        with self._lock:
            try:
                self._discard()
            finally:
                if self._own_workloads:
                    self._workloads.close()

    def interrupt(self) -> None:
        """Until :meth:`go_on` measurements, the one under way too, end as if they were killed.

        A child that is only being proven is left alone: its death would be taken for the device's.
        """
        self._interrupted.set()
        # In this order: a later child has not been running yet.
        child = self._child
        if child is not None and self._running:
            child.interrupt()

    def go_on(self) -> None:
        """Measure again after :meth:`interrupt`."""
        self._interrupted.clear()

    def stop(self) -> None:
        """End what is under way for good: no child is started any more, calls raise DeviceError."""
        self._stopped.set()
        child = self._child
        if child is not None:
            child.interrupt()

    @property
    def quarantine_reason(self) -> str:
        """Why the device is not used any more; empty while it works."""
        return self._quarantine

    @property
    def child_pid(self) -> int | None:
        """The warm child's process id; None when there is none."""
        return self._child.pid if self._child is not None else None

    def profile(self) -> DeviceProfile:
        """The device's limits as its driver reports them; raises DeviceError."""
        with self._lock:
            self._ready_child()
            assert self._profile is not None
            return self._profile

    def facts(self) -> dict[str, str]:
        """Driver, versions, clocks and machine as seen when the child started."""
        with self._lock:
            self._ready_child()
            return dict(self._facts)

    def upload_workload(
        self,
        key: str,
        inputs: Mapping[str, np.ndarray[Any, Any]],
        expected: np.ndarray[Any, Any],
    ) -> None:
        """Store inputs (of element types) and the reference under ``key``; raises InputError.

        They are written once to a private directory, from which every child loads them.
        """
        self._workloads.upload(key, inputs, expected)

    def drop_workload(self, key: str) -> None:
        """Remove a workload's files; nothing happens when there are none."""
        self._workloads.drop(key)

    def check(self, request: MeasureRequest) -> None:
        """Raise InputError for a request that contradicts itself or its workload."""
        check_request(self._workloads, request)

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
        """Measure ``plan`` on the workload; the child is killed after ``timeout_s``, of which
        waiting for a turn is no part, or where a stage passes its deadline.

        Raises InputError for contradictory arguments and DeviceError when the *device*
        fails; whatever the candidate does is an outcome.
        """
        request = MeasureRequest(
            plan, workload, candidate, tolerance, protocol, timeout_s, deadlines
        )
        with self._lock:
            stored = check_request(self._workloads, request)
            try:
                outcome = self._run_unless_interrupted(request, stored)
            except _DiedIdle:
                outcome = self._run_unless_interrupted(request, stored)
            if isinstance(outcome, Timed):
                outcome.facts.update({**self._facts, **outcome.facts})
            return outcome

    def _run_unless_interrupted(self, request: MeasureRequest, stored: StoredWorkload) -> Outcome:
        """The outcome of a proven child. Whoever interrupts sees it run, or is seen here."""
        child = self._ready_child()
        self._running = True
        try:
            if self._interrupted.is_set():
                return Crash(-signal.SIGKILL, "interrupted")
            return self._run(child, request, stored)
        finally:
            self._running = False

    def _run(
        self,
        child: ChildProcess,
        request: MeasureRequest,
        workload: StoredWorkload,
        *,
        with_reference: bool = True,
    ) -> Outcome:
        """One request to the child; a child that is bad afterwards is discarded.

        Raises _DiedIdle when the child was dead before it had the request.
        """
        running_s = request.deadlines.running_s
        message = {
            "type": "measure",
            "plan": request.plan.to_json(),
            "workload": str(workload.directory),
            "tolerance": request.tolerance.to_json(),
            "protocol": request.protocol.to_json(),
            "timeout_s": request.timeout_s,
            "running_s": running_s if math.isfinite(running_s) else None,
            "turn": None if self._turn is None else str(self._turn),
            "quiet": self._quiet,
            "with_reference": with_reference,
        }
        try:
            started = time.monotonic()
            try:
                child.submit(message, started + request.timeout_s)
            except ChildDied as death:
                self._discard()
                raise _DiedIdle(death.message) from None
            left_s = request.timeout_s - (time.monotonic() - started)
            reply = self._answer(child, request, left_s)
        except _Stopped as stopped:
            self._discard()
            return Timeout(stopped.after_s)
        except ChildTimedOut:
            self._discard()
            return Timeout(request.timeout_s)
        except ChildDied as death:
            self._discard()
            return Crash(death.exit_code, death.message)
        except _DiedIdle:
            raise
        except _NoTurn:
            self._discard()
            raise
        except DeviceError as error:
            # The process ignores SIGKILL: starting another on the device would hang as well.
            self._child = None
            self._quarantine = str(error)
            raise
        except BaseException:
            # Interrupted: the answer may still come, and the next job must not take it.
            self._discard()
            raise
        try:
            outcome, retire = outcome_from_json(reply["outcome"]), bool(reply["retire"])
        except (BadMessage, KeyError, TypeError, ValueError) as error:
            # A kernel may have written over the child's memory.
            outcome, retire = Crash(1, f"the measuring process answered nonsense: {error!r}"), True
        if retire or child.has_started_more():
            self._discard()
        return outcome

    def _answer(
        self, child: ChildProcess, request: MeasureRequest, left_s: float
    ) -> dict[str, Any]:
        """The child's answer, after the stages that it says; raises _Stopped, _NoTurn and what
        :meth:`ChildProcess.receive` does.

        Stages come in their order and once each: a kernel that has the child in its hand cannot
        stay by telling of more.
        """
        deadlines, stage = request.deadlines, "building"
        ahead = [name for name in STAGES if name != "waiting" or self._turn is not None]
        while True:
            began, waiting = time.monotonic(), stage == "waiting"
            stage_s = deadlines.of(stage)
            try:
                reply = child.receive(began + (stage_s if waiting else min(stage_s, left_s)))
            except ChildTimedOut:
                if waiting:
                    raise _NoTurn(stage_s) from None
                raise _Stopped(request.timeout_s if left_s <= stage_s else stage_s) from None
            if not waiting:
                left_s = max(0.0, left_s - (time.monotonic() - began))
            if reply.get("type") != "stage":
                return reply
            stage = reply.get("name")
            if stage not in ahead:
                return {"outcome": {"kind": f"the stage {str(stage)[:80]!r}"}}
            del ahead[: ahead.index(stage) + 1]

    def _ready_child(self) -> ChildProcess:
        """The warm child, or a fresh one that has run the golden kernel."""
        self._require_going_on()
        if self._quarantine:
            raise DeviceError(Problem("device", "is quarantined", found=self._quarantine))
        if self._child is not None and self._child.is_alive():
            return self._child
        self._discard()
        try:
            return self._start()
        except _ProbeFailed as failure:
            self._require_going_on()
            if self._recovery is None:
                raise self._quarantined(failure) from None
        self._recovery()
        try:
            return self._start()
        except _ProbeFailed as failure:
            raise self._quarantined(failure) from None

    def _require_going_on(self) -> None:
        if self._stopped.is_set():
            raise DeviceError(Problem("device", "is closed"))

    def _quarantined(self, failure: _ProbeFailed) -> DeviceError:
        self._quarantine = failure.reason
        return DeviceError(
            Problem(
                "device",
                "the golden kernel fails on it; it is quarantined",
                found=failure.reason,
                allowed="the known output of the golden kernel",
                remedy="reset the device or reinstall its driver",
            )
        )

    def _start(self) -> ChildProcess:
        """Start a child and probe it; raises DeviceError (not there) or _ProbeFailed."""
        self.starts += 1
        self._child = ChildProcess(
            self._device, self._workloads.root, self._child_module, self._environment
        )
        try:
            # Who stops us now sees the child, who did before is seen here.
            self._require_going_on()
            self._probe(self._child)
        except BaseException:
            # Whatever it was, an unproven child must not get a candidate.
            self._discard()
            raise
        return self._child

    def _probe(self, child: ChildProcess) -> None:
        """Wait for the device and run the golden kernel on it."""
        try:
            hello = child.receive(time.monotonic() + self._start_timeout_s)
        except ChildTimedOut:
            raise _ProbeFailed(f"opening the device took over {self._start_timeout_s} s") from None
        except ChildDied as death:
            raise _ProbeFailed(f"opening the device failed: {death.message}") from None
        if hello["type"] == "device-error":
            raise DeviceError([Problem(**problem) for problem in hello["problems"]])
        self._profile = profile_from_json(hello["profile"])
        self._facts = hello["facts"]
        golden = MeasureRequest(
            self._golden.plan, "", protocol=_GOLDEN_PROTOCOL, timeout_s=self._probe_timeout_s
        )
        outcome = self._run(child, golden, self._golden_workload, with_reference=False)
        if not isinstance(outcome, Timed):
            raise _ProbeFailed(str(outcome))
        child.remember_threads()

    def _discard(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.close()


class _DiedIdle(DeviceError):
    """The child was killed from outside while it waited; worth a fresh one, once."""

    def __init__(self, message: str) -> None:
        super().__init__(Problem("device", "the idle measuring process died", found=message))


class _NoTurn(DeviceError):
    """Others have had the device for longer than anybody waits."""

    def __init__(self, after_s: float) -> None:
        super().__init__(Problem("device", "was not free in time", found=f"{after_s} s"))


class _Stopped(Exception):
    """The child was killed because a stage, or all of them, took longer than ``after_s``."""

    def __init__(self, after_s: float) -> None:
        super().__init__(f"after {after_s} s")
        self.after_s = after_s


class _ProbeFailed(Exception):
    """A fresh child did not run the golden kernel."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def check_request(workloads: Workloads, request: MeasureRequest) -> StoredWorkload:
    """The workload of a request; InputError where one contradicts the other, or itself."""
    if not request.timeout_s > 0:
        raise InputError(Problem("timeout_s", "must be positive", found=str(request.timeout_s)))
    return workloads.require(request.workload, request.plan)


def profile_from_json(value: dict[str, Any]) -> DeviceProfile:
    """A profile as a child's greeting has it."""
    shapes = {key: tuple(value[key]) for key in ("max_work_item_sizes", "vector_widths")}
    return DeviceProfile(**{**value, **shapes})


def measure(
    plan: HostPlan,
    inputs: Mapping[str, np.ndarray[Any, Any]],
    expected: np.ndarray[Any, Any],
    *,
    device: str = "host",
    tolerance: Tolerance = DEFAULT_TOLERANCE,
    protocol: Protocol = DEFAULT_PROTOCOL,
    timeout_s: float = 60.0,
) -> Outcome:
    """Measure a single candidate in a child of its own; raises InputError and DeviceError."""
    with MeasuringChild(device) as child:
        child.upload_workload("only", inputs, expected)
        return child.measure(
            plan, workload="only", tolerance=tolerance, protocol=protocol, timeout_s=timeout_s
        )
