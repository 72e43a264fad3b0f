"""The OpenCL measuring device: one warm child process, replaced whenever it goes bad."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from mapper.device_profile import DeviceProfile
from mapper.errors import DeviceError, InputError, Problem
from mapper.host_plan import HostPlan
from mapper.measurement import Crash, Outcome, Timed, Timeout
from worker.measuring.checks import (
    InputShapes,
    InputTypes,
    check_plan,
    check_workload,
    output_buffer,
)
from worker.measuring.child_process import (
    MEASURING_CHILD,
    NOTHING_MORE,
    ChildDied,
    ChildProcess,
    ChildTimedOut,
)
from worker.measuring.golden import GoldenKernel, golden_kernel
from worker.measuring.settings import (
    DEFAULT_PROTOCOL,
    DEFAULT_TOLERANCE,
    Protocol,
    Tolerance,
)
from worker.measuring.wire import BadMessage, outcome_from_json

_GOLDEN_PROTOCOL = Protocol(warmup=0, repetitions=1, max_repetitions=1)


@dataclass(frozen=True, slots=True)
class _Workload:
    """Where a workload's arrays lie, what shapes they have and how their elements are stored."""

    directory: Path
    input_shapes: InputShapes
    input_types: InputTypes
    expected_shape: tuple[int, ...]


class MeasuringChild:
    """Measures candidates on an OpenCL device in a child process; a context manager.

    The child starts at the first use and stays warm. It is killed with its whole process
    group when a candidate passes its deadline, and replaced after every death; a fresh child
    must run the golden kernel before it gets a candidate. If it cannot, ``recovery`` (for
    instance a driver reload) is called once; if that does not help the device is quarantined
    and every further call raises DeviceError with the reason. ``child_module`` is run in
    place of the plain measuring child, under limits of its own for instance.

    Safe to share between threads: calls wait for each other.
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
    ) -> None:
        self._device = device
        self._golden = golden or golden_kernel()
        self._recovery = recovery
        self._start_timeout_s = start_timeout_s
        self._probe_timeout_s = probe_timeout_s
        self._child_module = child_module
        self._environment = environment
        self._directory = tempfile.TemporaryDirectory(
            prefix="nestmap-measuring-", ignore_cleanup_errors=True
        )
        # In a folder of its own, which a child in a sandbox sees as another user.
        self._workload_folder = Path(self._directory.name) / "workloads"
        self._workload_folder.mkdir(mode=0o755)
        self._lock = threading.RLock()
        self._child: ChildProcess | None = None
        self._profile: DeviceProfile | None = None
        self._facts: dict[str, str] = {}
        self._workloads: dict[str, _Workload] = {}
        self._stored = 0
        self._quarantine = ""
        self.starts = 0
        self._golden_workload = self._store(self._golden.inputs, self._golden.expected)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the child and remove every temporary file."""
        with self._lock:
            try:
                self._discard()
            finally:
                self._directory.cleanup()

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
        """Store inputs (float32 or float16) and the reference under ``key``; raises InputError.

        They are written once to a private directory, from which every child loads them.
        """
        with self._lock:
            check_workload(inputs, expected)
            self.drop_workload(key)
            self._workloads[key] = self._store(inputs, expected)

    def drop_workload(self, key: str) -> None:
        """Remove a workload's files; nothing happens when there are none."""
        with self._lock:
            workload = self._workloads.pop(key, None)
            if workload is not None:
                for path in workload.directory.iterdir():
                    path.unlink()

    def _store(
        self, inputs: Mapping[str, np.ndarray[Any, Any]], expected: np.ndarray[Any, Any]
    ) -> _Workload:
        # Numbered, not named by key: keys and input names come from users.
        directory = self._workload_folder / str(self._stored)
        self._stored += 1
        directory.mkdir()
        if any(len(name.splitlines()) != 1 for name in inputs):
            raise InputError(Problem("inputs", "an input's name is empty or has line breaks"))
        (directory / "names.txt").write_text("\n".join(inputs), encoding="utf-8")
        for index, array in enumerate(inputs.values()):
            np.save(directory / f"input{index}.npy", array, allow_pickle=False)
        np.save(directory / "expected.npy", expected, allow_pickle=False)
        # The folder above is private; what lies in it is read by whoever the child is.
        for path, mode in ((directory, 0o755), *((file, 0o644) for file in directory.iterdir())):
            path.chmod(mode)
        shapes = {name: array.shape for name, array in inputs.items()}
        types = {name: array.dtype for name, array in inputs.items()}
        return _Workload(directory, shapes, types, expected.shape)

    def measure(
        self,
        plan: HostPlan,
        *,
        workload: str,
        candidate: str = "",
        tolerance: Tolerance = DEFAULT_TOLERANCE,
        protocol: Protocol = DEFAULT_PROTOCOL,
        timeout_s: float = 60.0,
    ) -> Outcome:
        """Measure ``plan`` on the workload; the child is killed after ``timeout_s``.

        Raises InputError for contradictory arguments and DeviceError when the *device*
        fails; whatever the candidate does is an outcome.
        """
        del candidate
        with self._lock:
            stored = self._workloads.get(workload)
            if stored is None:
                raise InputError(Problem("workload", "was never uploaded", found=repr(workload)))
            if not timeout_s > 0:
                raise InputError(Problem("timeout_s", "must be positive", found=str(timeout_s)))
            check_plan(plan, stored.input_shapes, stored.input_types)
            output = output_buffer(plan)
            if output.shape != stored.expected_shape:
                raise InputError(
                    Problem(
                        "plan/buffers",
                        f"output {output.name} has not the reference's shape",
                        str(output.shape),
                        str(stored.expected_shape),
                    )
                )
            try:
                outcome = self._run(
                    self._ready_child(), plan, stored, tolerance, protocol, timeout_s
                )
            except _DiedIdle:
                outcome = self._run(
                    self._ready_child(), plan, stored, tolerance, protocol, timeout_s
                )
            if isinstance(outcome, Timed):
                outcome.facts.update({**self._facts, **outcome.facts})
            return outcome

    def _run(
        self,
        child: ChildProcess,
        plan: HostPlan,
        workload: _Workload,
        tolerance: Tolerance,
        protocol: Protocol,
        timeout_s: float,
        *,
        with_reference: bool = True,
    ) -> Outcome:
        """One request to the child; a child that is bad afterwards is discarded.

        Raises _DiedIdle when the child was dead before it had the request.
        """
        message = {
            "type": "measure",
            "plan": plan.to_json(),
            "workload": str(workload.directory),
            "tolerance": tolerance.to_json(),
            "protocol": protocol.to_json(),
            "timeout_s": timeout_s,
            "with_reference": with_reference,
        }
        try:
            deadline = time.monotonic() + timeout_s
            try:
                child.submit(message, deadline)
            except ChildDied as death:
                self._discard()
                raise _DiedIdle(death.message) from None
            reply = child.receive(deadline)
        except ChildTimedOut:
            self._discard()
            return Timeout(timeout_s)
        except ChildDied as death:
            self._discard()
            return Crash(death.exit_code, death.message)
        except _DiedIdle:
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
        except (BadMessage, KeyError, TypeError) as error:
            # A kernel may have written over the child's memory.
            outcome, retire = Crash(1, f"the measuring process answered nonsense: {error!r}"), True
        if retire or child.has_started_more():
            self._discard()
        return outcome

    def _ready_child(self) -> ChildProcess:
        """The warm child, or a fresh one that has run the golden kernel."""
        if self._quarantine:
            raise DeviceError(Problem("device", "is quarantined", found=self._quarantine))
        if self._child is not None and self._child.is_alive():
            return self._child
        self._discard()
        try:
            return self._start()
        except _ProbeFailed as failure:
            if self._recovery is None:
                raise self._quarantined(failure) from None
        self._recovery()
        try:
            return self._start()
        except _ProbeFailed as failure:
            raise self._quarantined(failure) from None

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
            self._device, Path(self._directory.name), self._child_module, self._environment
        )
        try:
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
        outcome = self._run(
            child,
            self._golden.plan,
            self._golden_workload,
            Tolerance(),
            _GOLDEN_PROTOCOL,
            self._probe_timeout_s,
            with_reference=False,
        )
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


class _ProbeFailed(Exception):
    """A fresh child did not run the golden kernel."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


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
