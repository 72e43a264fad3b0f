"""Processes that build candidates side by side and time them in turns on one device."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from mapper.device_profile import DeviceProfile
from mapper.errors import DeviceError, Problem
from mapper.layer_spec import LayerSpec
from mapper.measurement import Crash, Outcome, Timeout
from nestmap.tuning.measuring.candidate_child import Repetition
from nestmap.tuning.measuring.judging import save_workload
from nestmap.tuning.reference import Workload
from nestmap.tuning.trial import Trial, trial_from_json
from worker.measuring.child_process import ChildDied, ChildProcess, ChildTimedOut
from worker.measuring.measuring_child import profile_from_json

#: The module that every process runs.
CANDIDATE_CHILD = "nestmap.tuning.measuring.candidate_child"
_BAD_STARTS = 3


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that each stage of a candidate may take; a process that passes one is killed.

    ``waiting`` is for the device, while others are timed.
    """

    starting: float = 120.0
    building: float = 60.0
    waiting: float = 600.0
    running: float = 20.0
    judging: float = 120.0

    def of(self, stage: str) -> float:
        """The seconds of a stage by name."""
        return float(getattr(self, stage))


@dataclass(frozen=True, slots=True)
class _Task:
    """What candidates are of, as every process is told; the number tells tasks apart."""

    number: int
    message: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Job:
    task: _Task
    choices: Mapping[str, Any]
    how: Repetition


@dataclass(slots=True)
class _Worker:
    """One thread's child and what it was last told."""

    child: ChildProcess | None = None
    task: int = -1
    bad_starts: int = 0


@dataclass(slots=True)
class DeviceState:
    """What the first child that started said of the device."""

    facts: dict[str, str] = field(default_factory=dict[str, str])
    profile: DeviceProfile | None = None


class Pool:
    """Measures candidates with several processes; a context manager.

    ``begin`` names the layer, ``submit`` hands a candidate over, ``result`` waits for any that
    is done. A candidate that hangs or crashes takes its own process along, which is replaced.
    """

    def __init__(
        self,
        device: str,
        workers: int,
        deadlines: Deadlines | None = None,
        child: str = CANDIDATE_CHILD,
    ) -> None:
        self._device = device
        self._child = child
        self._deadlines = deadlines or Deadlines()
        self._directory = tempfile.TemporaryDirectory(
            prefix="nestmap-kernel-bench-", ignore_cleanup_errors=True
        )
        self._folder = Path(self._directory.name)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Trial | DeviceError] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._task: _Task | None = None
        self._begun: dict[int, _Task] = {}
        self._tasks = 0
        self.waiting = 0
        self._state = DeviceState()
        self._known = threading.Event()
        self._failure: DeviceError | None = None
        self._workers = [_Worker() for _ in range(max(1, workers))]
        self._threads = [
            threading.Thread(target=self._serve, args=(worker,), daemon=True)
            for worker in self._workers
        ]
        for thread in self._threads:
            thread.start()

    @property
    def size(self) -> int:
        """How many processes there are."""
        return len(self._workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.set()
        for _ in self._threads:
            self._jobs.put(None)
        for worker in self._workers:
            child = worker.child
            if child is not None:
                # Its thread waits for an answer that shall not come any more.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGKILL)
        for thread in self._threads:
            thread.join(10.0)
        self._directory.cleanup()

    def device(self) -> DeviceState:
        """Facts and limits of the device; waits for a process to open it. DeviceError."""
        self._known.wait(self._deadlines.starting)
        if self._failure is not None:
            raise self._failure
        if self._state.profile is None:
            raise DeviceError(Problem("device", "no process could open it in time", self._device))
        return self._state

    def begin(self, layer: LayerSpec, variant: str, workload: Workload) -> int:
        """Make a layer the one that further candidates are of; its number, for :meth:`resume`."""
        self._tasks += 1
        folder = self._folder / f"task{self._tasks}"
        save_workload(workload, folder)
        self._task = _Task(
            self._tasks,
            {
                "type": "task",
                "layer": layer.to_json(),
                "variant": variant,
                "workload": str(folder),
                "tolerance": workload.tolerance.to_json(),
                "lock": str(self._folder / "device.lock"),
            },
        )
        self._begun[self._tasks] = self._task
        return self._tasks

    @property
    def tasks(self) -> tuple[_Task, ...]:
        """The layers that can be resumed."""
        return tuple(self._begun.values())

    def resume(self, number: int) -> None:
        """Make a layer that was begun before the one that further candidates are of."""
        self._task = self._begun[number]

    def forget(self) -> None:
        """Free what layers begun so far have on disk; no candidate of theirs may be waiting."""
        assert not self.waiting
        for task in self._begun.values():
            shutil.rmtree(task.message["workload"], ignore_errors=True)
        self._begun.clear()
        self._task = None

    def submit(self, choices: Mapping[str, Any], how: Repetition) -> None:
        """Queue a candidate of the current layer."""
        assert self._task is not None
        self._jobs.put(_Job(self._task, choices, how))
        self.waiting += 1

    def result(self, timeout_s: float) -> Trial | None:
        """The next candidate that is done; None if none is within the time. DeviceError."""
        try:
            found = self._results.get(timeout=max(timeout_s, 0.001))
        except queue.Empty:
            return None
        self.waiting -= 1
        if isinstance(found, DeviceError):
            raise found
        return found

    def drop_queued(self) -> None:
        """Forget what no process has begun."""
        with contextlib.suppress(queue.Empty):
            while True:
                job = self._jobs.get_nowait()
                if job is not None:
                    self.waiting -= 1

    def drain(self) -> None:
        """Drop what is queued, and the results of what was begun, once they are there."""
        self.drop_queued()
        while self.waiting:
            with contextlib.suppress(DeviceError):
                self.result(1.0)

    # In a worker's thread

    def _serve(self, worker: _Worker) -> None:
        try:
            # Opening a device takes a second: not when the first candidate comes.
            self._ready(worker)
        except DeviceError as error:
            self._failure = error
            self._known.set()
        while (job := self._jobs.get()) is not None:
            try:
                self._results.put(self._measured(worker, job))
            except DeviceError as error:
                self._results.put(error)
        self._discard(worker)

    def _measured(self, worker: _Worker, job: _Job) -> Trial:
        stage, started = "starting", time.monotonic()
        try:
            child = self._ready(worker)
            if worker.task != job.task.number:
                child.submit(job.task.message, _in(self._deadlines.starting))
                child.receive(_in(self._deadlines.starting))
                worker.task = job.task.number
            stage = "building"
            message = {"type": "candidate", "choices": dict(job.choices), "how": asdict(job.how)}
            child.submit(message, _in(self._deadlines.building))
            reply = child.receive(_in(self._deadlines.building))
            while reply["type"] == "stage":
                stage, started = str(reply["name"]), time.monotonic()
                reply = child.receive(_in(self._deadlines.of(stage)))
            trial = trial_from_json(reply["trial"])
            if reply["retire"]:
                self._discard(worker)
            return trial
        except ChildTimedOut:
            self._discard(worker)
            return _failed(job, Timeout(round(time.monotonic() - started, 1)))
        except ChildDied as death:
            self._discard(worker)
            return _failed(job, Crash(death.exit_code, f"while {stage}: {death.message}"))
        except (KeyError, TypeError, ValueError) as error:
            # A kernel may have written over the child's memory.
            self._discard(worker)
            return _failed(job, Crash(1, f"the process answered nonsense: {error!r}"))

    def _ready(self, worker: _Worker) -> ChildProcess:
        if worker.child is not None and worker.child.is_alive():
            return worker.child
        self._discard(worker)
        if self._closing.is_set():
            raise DeviceError("the pool is closed")
        if worker.bad_starts >= _BAD_STARTS:
            raise DeviceError(
                Problem("device", f"{_BAD_STARTS} processes in a row could not open it")
            )
        worker.bad_starts += 1
        worker.child = ChildProcess(self._device, self._folder, self._child)
        try:
            hello = worker.child.receive(_in(self._deadlines.starting))
        except (ChildDied, ChildTimedOut) as error:
            self._discard(worker)
            raise DeviceError(
                Problem("device", "a process could not open it", str(error))
            ) from None
        if hello["type"] == "device-error":
            raise DeviceError([Problem(**problem) for problem in hello["problems"]])
        worker.bad_starts, worker.task = 0, -1
        if not self._known.is_set():
            self._state.facts = hello["facts"]
            self._state.profile = profile_from_json(hello["profile"])
            self._known.set()
        return worker.child

    def _discard(self, worker: _Worker) -> None:
        child, worker.child, worker.task = worker.child, None, -1
        if child is not None:
            child.close()


def _failed(job: _Job, outcome: Outcome) -> Trial:
    return Trial(job.choices, outcome)


def _in(seconds: float) -> float:
    return time.monotonic() + seconds
