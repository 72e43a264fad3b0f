"""A process that builds candidates and times them when it is its turn.

Started by :class:`nestmap.tuning.measuring.pool.Pool`, never by hand. Many run side by side:
generating and compiling needs a core each, the device is taken by one at a time, which a file
lock decides (a process that dies gives it back). The process may hang or crash with any kernel;
before each stage it says which one comes, so that its deadline can be kept from outside.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mapper.errors import DeviceError, NestmapError
from mapper.host_plan import HostPlan
from mapper.kernel_gen.generate import generate
from mapper.layer_spec import LayerSpec
from mapper.measurement import Crash, Outcome, Timed
from mapper.pipeline import Subject, subject_of_layer
from nestmap.tuning.measuring.judging import Judge, load_workload
from nestmap.tuning.measuring.span import SpanPlan, interquartile, prepared_bytes, scratch_bytes
from nestmap.tuning.reference import Workload
from nestmap.tuning.trial import Trial, generator_choices
from worker.devices.facts import device_facts
from worker.devices.opencl import profile_of
from worker.measuring.child_main import die_with_parent
from worker.measuring.driver_errors import PlanFailure
from worker.measuring.loaded_plan import Session, open_session
from worker.measuring.settings import Tolerance
from worker.measuring.wire import StreamEnded, receive, send


@dataclass(frozen=True, slots=True)
class Repetition:
    """How a candidate is timed: what takes longer than ``cutoff_ms`` (0: nothing does) is run
    once only, the verified run; ``exact`` also asks for the error's norm and a second look."""

    warmup: int = 1
    repetitions: int = 7
    cutoff_ms: float = 0.0
    exact: bool = False


@dataclass(frozen=True, slots=True)
class _Task:
    """What candidates are of: a layer in a variant, with its workload."""

    subject: Subject
    workload: Workload
    judge: Judge


Stage = Callable[[str], None]


@contextlib.contextmanager
def _turn(lock: int) -> Iterator[None]:
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)


def measure(
    session: Session, plan: HostPlan, task: _Task, how: Repetition, lock: int, stage: Stage
) -> tuple[Outcome, float, bool]:
    """The outcome, the relative error (0 unless exact) and whether to retire this process."""
    try:
        started = time.perf_counter()
        with SpanPlan(session, plan) as loaded:
            loaded.fill_inputs(task.workload.inputs)
            build_ms = (time.perf_counter() - started) * 1e3
            stage("waiting")
            with _turn(lock):
                stage("running")
                loaded.poison()
                loaded.prepare()
                first_ns, first_wall_s = loaded.span()
                output = loaded.read_output()
                slow = bool(how.cutoff_ms) and first_ns > how.cutoff_ms * 1e6
                trials = [first_ns]
                if not slow:
                    for _ in range(how.warmup):
                        loaded.span()
                    trials = [loaded.span()[0] for _ in range(how.repetitions)]
                late = loaded.read_output() if how.exact and not slow else output
            stage("judging")
            error, wrong = 0.0, task.judge.glance(output)
            if wrong is None and how.exact:
                verdict = task.judge.verdict(late)
                error, wrong = verdict.relative_error, verdict.wrong
            if wrong is not None:
                return wrong, error, False
            facts = {
                "build_ms": f"{build_ms:.1f}",
                "first_run_ms": f"{max(first_wall_s * 1e3, first_ns / 1e6):.3f}",
                "spread": f"{interquartile(trials):.4f}",
                **loaded.kernel_facts(),
            }
            if slow:
                facts["trials.note"] = "slow: the verified run only"
            return Timed(tuple(trials), error, build_ms, facts), error, False
    except PlanFailure as failure:
        return failure.outcome, 0.0, failure.retire


class _Server:
    """Answers one request after the other."""

    def __init__(self, session: Session, reply: Callable[[dict[str, Any]], None]) -> None:
        self._session = session
        self._reply = reply
        self._task: _Task | None = None
        self._lock = -1

    def begin(self, request: dict[str, Any]) -> None:
        """Load the layer that the next candidates are of."""
        if self._lock < 0:
            self._lock = os.open(request["lock"], os.O_RDWR | os.O_CREAT, 0o600)
        workload = load_workload(Path(request["workload"]), Tolerance(**request["tolerance"]))
        subject = subject_of_layer(LayerSpec.from_json(request["layer"]), request["variant"])
        judge = Judge(workload.expected, workload.tolerance)
        self._task = _Task(subject, workload, judge)

    def candidate(self, request: dict[str, Any]) -> tuple[Trial, bool]:
        """Make, build, verify and time one candidate."""
        assert self._task is not None
        choices = request["choices"]
        try:
            program = self._task.subject.require_program()
            plan = generate(program, generator_choices(self._task.subject, choices))
        except NestmapError as error:
            return Trial(choices, None, refused=str(error)), False
        try:
            outcome, error, retire = measure(
                self._session,
                plan,
                self._task,
                Repetition(**request["how"]),
                self._lock,
                lambda name: self._reply({"type": "stage", "name": name}),
            )
        except Exception:
            outcome, error, retire = Crash(1, traceback.format_exc()), 0.0, True
        trial = Trial(
            choices,
            outcome,
            scratch_bytes(plan),
            prepared_bytes(plan),
            error,
            hashlib.sha256(plan.source.encode()).hexdigest(),
        )
        return trial, retire


def main() -> int:
    """Serve until the parent closes its end."""
    parser = argparse.ArgumentParser(prog="nestmap.tuning.measuring.candidate_child")
    parser.add_argument("--device", required=True)
    parser.add_argument("--lifeline", type=int, required=True)
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    die_with_parent(arguments.lifeline)
    # Drivers write to standard output: keep the pipe for ourselves.
    replies = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        session = open_session(arguments.device)
    except DeviceError as error:
        send(replies, {"type": "device-error", "problems": [asdict(p) for p in error.problems]})
        return 1
    facts = device_facts(session.device)
    profile = asdict(profile_of(session.device))
    send(replies, {"type": "ready", "facts": facts, "profile": profile})
    server = _Server(session, lambda message: send(replies, message))
    while True:
        try:
            request = receive(sys.stdin.fileno())
        except StreamEnded:
            return 0
        send(replies, {"type": "accepted"})
        if request["type"] == "task":
            server.begin(request)
            send(replies, {"type": "begun"})
            continue
        trial, retire = server.candidate(request)
        send(replies, {"type": "trial", "trial": trial.to_json(), "retire": retire})


if __name__ == "__main__":
    # Skip clean-up: a context that a kernel broke may crash in it, after the answer was given.
    os._exit(main())
