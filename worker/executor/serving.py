"""The executor's loop: jobs as lines of JSON on standard input, events on standard output.

In: ``{"do": "measure", "job", "payload", "artifacts": {hash: file}, "limit_s"}`` and
``{"do": "cancel"}``; the end of the input ends it. Out: ``ready`` (the golden kernel has run
since the last trouble), ``stage``, ``outcome``, ``cancelled``, ``recovering`` (the owner's reload
command ran), ``quarantined`` and ``no-device``. Exactly one of ``ready``, ``quarantined`` and
``no-device`` follows the start and every job.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import signal
import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mapper.errors import DeviceError, InputError
from mapper.measurement import Crash, Outcome
from mapper.profiles import profile_to_json
from worker.devices.facts import machine_state
from worker.devices.interface import MeasuringDevice
from worker.devices.null import plan_digest
from worker.executor.jobs import MeasureJob, outcome_to_result
from worker.executor.opening import open_device
from worker.executor.recordings import Recorder
from worker.measuring import MeasuringChild
from worker.measuring.sandbox import KINDS, Sandbox, lacking

#: A measuring process that something outside killed (memory ran out) gets another chance.
MOST_TRIES = 3
#: Workloads kept as files; the measuring child keeps as many in memory.
_KEPT_WORKLOADS = 2
_CLOSING_GRACE_S = 5.0


class Executor:
    """Serves one device to one agent."""

    def __init__(
        self,
        device: MeasuringDevice,
        events: int,
        record: Path | None = None,
        *,
        require_sandbox: bool = False,
    ) -> None:
        self._device = device
        self._require_sandbox = require_sandbox and isinstance(device, MeasuringChild)
        self._events = events
        self._record = record
        self._recorder: Recorder | None = None
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._workloads: OrderedDict[str, None] = OrderedDict()
        self._cancelled = threading.Event()

    def emit(self, event: str, **fields: Any) -> None:
        """Send an event; an agent that is gone makes the input end too."""
        line = json.dumps({"event": event, **fields}, allow_nan=False).encode() + b"\n"
        with self._lock, contextlib.suppress(OSError):
            view = memoryview(line)
            while view:
                view = view[os.write(self._events, view) :]

    # -- the reading thread ------------------------------------------------------------------

    def read(self, requests: int) -> None:
        """Take in messages until the input ends; runs in a thread of its own."""
        with os.fdopen(requests, "rb", closefd=False) as lines:
            for line in lines:
                message = json.loads(line)
                if message["do"] == "cancel":
                    self._interrupt()
                else:
                    self._cancelled.clear()
                    if isinstance(self._device, MeasuringChild):
                        self._device.go_on()
                    self._jobs.put(message)
        self._jobs.put(None)
        self._interrupt()

    def _interrupt(self) -> None:
        """Make the job under way end, whether it is being measured yet or not."""
        self._cancelled.set()
        if isinstance(self._device, MeasuringChild):
            self._device.interrupt()

    # -- the main thread ---------------------------------------------------------------------

    def serve(self) -> None:
        """Prove the device, then measure job after job until the input ends."""
        if not self._prove():
            return
        while (message := self._jobs.get()) is not None:
            self._serve_one(message)
            if not self._prove():
                return

    def _prove(self) -> bool:
        """Say ``ready`` once a fresh or still warm child has run the golden kernel."""
        try:
            profile, facts = self._device.profile(), self._device.facts()
        except DeviceError as error:
            self._say_broken(error)
            return False
        if self._record is not None and self._recorder is None:
            self._recorder = Recorder(self._record, profile, facts)
        if self._require_sandbox and (missing := lacking(facts)):
            reason = "--require-sandbox: this system does not give all of it: " + "; ".join(missing)
            self.emit("no-device", reason=reason)
            return False
        self.emit("ready", facts={**facts, "profile": profile_to_json(profile)})
        return True

    def _say_broken(self, error: DeviceError) -> None:
        reason = getattr(self._device, "quarantine_reason", "")
        # What cannot be killed sits in the driver; the reason of the quarantine says so.
        self.emit("quarantined" if reason else "no-device", reason=reason or str(error))

    def _serve_one(self, message: dict[str, Any]) -> None:
        job = message["job"]
        try:
            wanted = MeasureJob.of(message["payload"], message["artifacts"], message["limit_s"])
            self.emit("stage", job=job, stage="loading")
            self._load(wanted)
            self.emit("stage", job=job, stage="measuring")
            outcome, facts = self._measured(wanted)
        except InputError as error:
            # Nobody can measure it, here or elsewhere: say so once instead of three times.
            outcome, facts = Crash(1, f"the job cannot be measured: {error}"[:8000]), {}
        except DeviceError as error:
            if isinstance(self._device, MeasuringChild):
                return  # proving says what is wrong; the job is for another attempt
            outcome, facts = Crash(1, f"the job cannot be measured: {error}"[:8000]), {}
        if self._cancelled.is_set():
            self.emit("cancelled", job=job)
            return
        if self._recorder is not None and facts:
            self._recorder.add(facts["plan.digest"], outcome)
        self.emit("outcome", job=job, outcome=outcome_to_result(outcome), facts=facts)

    def _load(self, job: MeasureJob) -> None:
        key = job.workload_key
        if key not in self._workloads:
            inputs = {name: array.load() for name, array in job.inputs.items()}
            self._device.upload_workload(key, inputs, job.expected.load())
            self._workloads[key] = None
        self._workloads.move_to_end(key)
        while len(self._workloads) > _KEPT_WORKLOADS:
            old, _ = self._workloads.popitem(last=False)
            if isinstance(self._device, MeasuringChild):
                self._device.drop_workload(old)

    def _measured(self, job: MeasureJob) -> tuple[Outcome, dict[str, str]]:
        """The outcome, with the state of the machine before and after."""
        digest = plan_digest(job.plan)
        before = machine_state()
        tries = 0
        while True:
            tries += 1
            outcome = self._device.measure(
                job.plan,
                workload=job.workload_key,
                candidate=digest,
                tolerance=job.tolerance,
                protocol=job.protocol,
                timeout_s=job.timeout_s,
            )
            killed = isinstance(outcome, Crash) and outcome.exit_code == -signal.SIGKILL
            if not killed or tries == MOST_TRIES or self._cancelled.is_set():
                break
        facts = {
            **self._facts_now(outcome),
            "plan.digest": digest,
            **{f"before.{name}": text for name, text in before.items()},
            **machine_state(),
        }
        if tries > 1:
            facts["tries"] = str(tries)
        return outcome, facts

    def _facts_now(self, outcome: Outcome) -> dict[str, str]:
        """The device's facts, without starting a child for them where the last one was lost."""
        if isinstance(self._device, MeasuringChild) and self._device.child_pid is None:
            return {"child.lost": type(outcome).__name__.lower()}
        return self._device.facts()


def _read_and_end(executor: Executor, requests: int) -> None:
    """Read to the end; the main thread then ends by itself, unless it waits for what does not
    come."""
    executor.read(requests)
    timer = threading.Timer(_CLOSING_GRACE_S, os._exit, (1,))
    timer.daemon = True
    timer.start()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until the agent closes its end."""
    parser = argparse.ArgumentParser(prog="worker.executor", allow_abbrev=False)
    parser.add_argument("--device", required=True)
    parser.add_argument("--nice", type=int, default=5)
    parser.add_argument("--memory-mb", type=int)
    parser.add_argument("--with-network", action="store_true")
    parser.add_argument("--sandbox", choices=KINDS, default=KINDS[0])
    parser.add_argument("--sandbox-path", action="append", default=[])
    parser.add_argument("--require-sandbox", action="store_true")
    parser.add_argument("--reload-command", default="")
    parser.add_argument("--record", type=Path)
    options = parser.parse_args(arguments)
    # What libraries print must not come between the events.
    events = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    memory = None if options.memory_mb is None else options.memory_mb * 1024 * 1024
    paths = tuple(options.sandbox_path)
    sandbox = Sandbox(options.nice, memory, options.with_network, options.sandbox, paths)
    executors: list[Executor] = []
    try:
        device = open_device(
            options.device,
            sandbox,
            options.reload_command,
            lambda text: executors[0].emit("recovering", text=text),
        )
    except DeviceError as error:
        os.write(events, json.dumps({"event": "no-device", "reason": str(error)}).encode() + b"\n")
        return 3
    with device:
        executor = Executor(device, events, options.record, require_sandbox=options.require_sandbox)
        executors.append(executor)
        reader = threading.Thread(
            target=_read_and_end,
            args=(executor, sys.stdin.fileno()),
            name="requests",
            daemon=True,
        )
        reader.start()
        executor.serve()
    return 0
