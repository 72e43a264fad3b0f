"""The measuring child: waits for plans on a pipe, measures them, answers on another.

Started by :class:`worker.measuring.child_process.ChildProcess`, never by hand.
"""

from __future__ import annotations

import _thread
import argparse
import contextlib
import os
import signal
import sys
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import asdict
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from mapper.errors import DeviceError
from mapper.host_plan import HostPlan
from mapper.measurement import Crash, Outcome, ResourceError
from worker.devices.facts import device_facts
from worker.devices.opencl import profile_of
from worker.measuring.back_to_back import WORTH_BELOW_NS, BackToBack
from worker.measuring.comparison import Reference
from worker.measuring.driver_errors import PlanFailure
from worker.measuring.golden import golden_kernel
from worker.measuring.loaded_plan import LoadedPlan, Session, open_session
from worker.measuring.plan_timing import Terms, measure_plan
from worker.measuring.sandbox import restrain
from worker.measuring.settings import Protocol, Tolerance
from worker.measuring.turns import Turns
from worker.measuring.wire import StreamEnded, outcome_to_json, receive, send
from worker.measuring.workloads import load_workload

#: Workloads kept in memory. A search works on one at a time; two make changing over cheap.
_KEPT_WORKLOADS = 2
_REFERENCE_RUNS = 5
#: A process that has become so much larger since its start is replaced.
_MOST_GROWN_BYTES = 2**30

_Workload = tuple[dict[str, np.ndarray[Any, Any]], Reference]


def die_with_parent(lifeline: int) -> None:
    """Kill the own group when the parent is gone, even while a kernel runs for ever.

    The parent holds the other end of ``lifeline`` and never writes. (PR_SET_PDEATHSIG would
    fire when the parent's *thread* ends, which in a service is not the end of the parent.)
    """

    def watch() -> None:
        with contextlib.suppress(OSError):
            os.read(lifeline, 1)
        os.killpg(0, signal.SIGKILL)

    # Not threading.Thread: start() waits for ever for a thread that had no memory to begin.
    _thread.start_new_thread(watch, ())


class _Reference:
    """The golden kernel, kept loaded, as a yardstick for the machine's speed."""

    def __init__(self, session: Session) -> None:
        golden = golden_kernel()
        self._loaded = LoadedPlan(session, golden.plan)
        self._loaded.fill_inputs(golden.inputs)
        self._loaded.run()

    def best_ns(self) -> int:
        """The shortest of a few runs in nanoseconds."""
        return min(self._loaded.run().kernel_ns for _ in range(_REFERENCE_RUNS))


class _Server:
    """Answers one request after the other; ``say`` hears the stages of each."""

    def __init__(self, session: Session, say: Callable[[str], None]) -> None:
        self._session = session
        self._say = say
        self._workloads: OrderedDict[str, _Workload] = OrderedDict()
        self._reference: _Reference | None = None
        self._back_to_back: BackToBack | None = None
        self._turns: Turns | None = None
        self._first_bytes = _own_bytes()

    def _workload(self, directory: str) -> _Workload:
        if directory not in self._workloads:
            inputs, expected = load_workload(Path(directory))
            self._workloads[directory] = (inputs, Reference(expected))
            while len(self._workloads) > _KEPT_WORKLOADS:
                self._workloads.popitem(last=False)
        self._workloads.move_to_end(directory)
        return self._workloads[directory]

    def _yardsticks(self) -> dict[str, Any]:
        """What is timed beside a candidate, built before it has its turn."""
        if self._reference is None:
            self._reference = _Reference(self._session)
        # Where events would measure the driver; a processor's have the host's own clock.
        if self._back_to_back is None and self._session.device.kind != "cpu":
            self._back_to_back = BackToBack(self._session)
        return {
            "reference_ns": self._reference.best_ns,
            "back_to_back_ns": None if self._back_to_back is None else self._without_events,
        }

    def _without_events(self, plan: LoadedPlan, by_events_ns: int) -> float | None:
        if self._back_to_back is None or by_events_ns >= WORTH_BELOW_NS:
            return None
        return self._back_to_back.run_ns(plan, by_events_ns)

    def measure(self, request: dict[str, Any]) -> tuple[Outcome, bool]:
        """Measure what the request asks for; also whether this process must be replaced."""
        if request["turn"] is None:
            return self._measure(request, None)
        # A child has one turn file all its life.
        self._turns = self._turns or Turns(request["turn"], request["quiet"], self._say)
        with self._turns.candidate():
            return self._measure(request, self._turns)

    def _measure(self, request: dict[str, Any], turns: Turns | None) -> tuple[Outcome, bool]:
        started = time.monotonic()
        self._say("building")
        try:
            plan = HostPlan.from_json(request["plan"])
            inputs, reference = self._workload(request["workload"])
            running_s = request["running_s"]
            yardsticks = self._yardsticks() if request["with_reference"] else {}
            terms = Terms(
                Tolerance(**request["tolerance"]),
                Protocol(**request["protocol"]),
                request["timeout_s"] - (time.monotonic() - started),
                inf if running_s is None else running_s,
                contextlib.nullcontext if turns is None else turns.running,
                self._say,
                **yardsticks,
            )
            outcome, retire = measure_plan(self._session, plan, inputs, reference, terms)
        except PlanFailure as failure:
            # Only the reference kernel's failure comes here: the candidate broke the context.
            return failure.outcome, True
        except MemoryError:
            return ResourceError("the host has not enough memory for the reference data"), True
        except Exception:
            return Crash(1, traceback.format_exc()), True
        # Drivers keep something of every program that they have built.
        return outcome, retire or _own_bytes() > self._first_bytes + _MOST_GROWN_BYTES


def _own_bytes() -> int:
    """What this process has in memory that is no file's; 0 where the system does not say."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return int(status.partition("RssAnon:")[2].split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        return 0


def main(sandbox: Mapping[str, str] = MappingProxyType({})) -> int:
    """Serve until the parent closes its end; ``sandbox`` are facts to give with the device's."""
    parser = argparse.ArgumentParser(prog="worker.measuring.child_main")
    parser.add_argument("--device", required=True)
    parser.add_argument("--lifeline", type=int, required=True)
    arguments = parser.parse_args()
    restrain()
    die_with_parent(arguments.lifeline)
    # Drivers and kernels' printf write to standard output: keep the pipe for ourselves.
    replies = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests = sys.stdin.fileno()
    try:
        session = open_session(arguments.device)
    except DeviceError as error:
        send(replies, {"type": "device-error", "problems": [asdict(p) for p in error.problems]})
        return 1
    send(
        replies,
        {
            "type": "ready",
            "profile": asdict(profile_of(session.device)),
            "facts": {**device_facts(session.device), **sandbox},
        },
    )
    server = _Server(session, lambda stage: send(replies, {"type": "stage", "name": stage}))
    while True:
        try:
            request = receive(requests)
        except StreamEnded:
            return 0
        send(replies, {"type": "accepted"})
        outcome, retire = server.measure(request)
        send(replies, {"type": "outcome", "outcome": outcome_to_json(outcome), "retire": retire})


if __name__ == "__main__":
    # Skip interpreter and driver clean-up: a context that a kernel broke may crash in it,
    # after the answer was given.
    os._exit(main())
