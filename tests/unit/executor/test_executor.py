"""The executor as a process: jobs in, events out, on the null, a recorded and a real device."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mapper.elements import Element
from mapper.host_plan import HostPlan
from tests.unit.agent.jobs import QUICK
from tests.unit.agent.running import ROOT, descendants, running
from tests.unit.worker.plans import (
    DOUBLE,
    ENDLESS,
    SEGFAULT,
    byte_plan,
    byte_workload,
    input_data,
    one_kernel_plan,
)
from worker.measuring import Tolerance

pytestmark = pytest.mark.kernels


class Running:
    """An executor process; a context manager."""

    def __init__(self, device: str, *options: str, environment: dict[str, str] | None = None):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "worker.executor", f"--device={device}", *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, **message: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def event(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the executor ended"
        return json.loads(line)

    def until(self, name: str) -> list[dict[str, Any]]:
        events = [self.event()]
        while events[-1]["event"] != name:
            events.append(self.event())
        return events

    def end(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(30)


class Jobs:
    """Jobs whose artifacts are files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.artifacts: dict[str, str] = {}

    def _store(self, data: bytes) -> str:
        import hashlib

        digest = hashlib.sha256(data).hexdigest()
        path = self._folder / digest
        path.write_bytes(data)
        self.artifacts[digest] = str(path)
        return digest

    def _array(self, values: np.ndarray) -> dict[str, Any]:
        stored = self._store(np.ascontiguousarray(values).tobytes())
        return {"artifact": stored, "dtype": str(values.dtype), "shape": list(values.shape)}

    def workload(self, data: np.ndarray, expected: np.ndarray) -> dict[str, Any]:
        return {
            "inputs": {"a": self._array(data)},
            "expected": self._array(expected),
            "tolerance": Tolerance(dtype=Element.INT32).to_json(),
        }

    def job(
        self, plan: HostPlan | str = DOUBLE, *, name: str = "job_1", timeout_s: float = 30.0,
        **more: Any,
    ) -> dict[str, Any]:  # fmt: skip
        data = input_data()
        plan_json = (one_kernel_plan(plan) if isinstance(plan, str) else plan).to_json()
        plan_json["source"] = {"artifact": self._store(plan_json["source"].encode())}
        payload = {
            "schema": "nestmap/measure-job/1", "candidate": "cand_1", "plan": plan_json,
            "workload": {
                "inputs": {"a": self._array(data)}, "expected": self._array(2 * data),
                "tolerance": Tolerance().to_json(),
            },
            "protocol": QUICK.to_json(), "timeout_s": timeout_s, **more,
        }  # fmt: skip
        return {"do": "measure", "job": name, "payload": payload, "artifacts": self.artifacts,
                "limit_s": 60.0}  # fmt: skip


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    folder = tmp_path / "artifacts"
    folder.mkdir()
    return Jobs(folder)


@pytest.fixture(scope="module")
def warm() -> Iterator[Running]:
    """An executor on PoCL that has run its golden kernel."""
    with Running("host") as executor:
        executor.until("ready")
        yield executor


def outcome_of(executor: Running, job: dict[str, Any]) -> dict[str, Any]:
    """The outcome event of a job; the executor is proven again when this returns."""
    executor.send(**job)
    events = executor.until("ready")
    (outcome,) = [event for event in events if event["event"] == "outcome"]
    return outcome


def assert_is_timed(executor: Running, job: dict[str, Any]) -> None:
    outcome = outcome_of(executor, job)["outcome"]
    assert outcome["kind"] == "timed", json.dumps(outcome, indent=1)


def test_kernel_is_timed_with_the_state_of_its_machine(warm: Running, jobs: Jobs) -> None:
    event = outcome_of(warm, jobs.job())
    assert event["outcome"]["kind"] == "timed"
    assert len(event["outcome"]["trials_ns"]) == 2
    assert len(event["outcome"]["spans_ns"]) == 2
    assert event["outcome"]["detail"]["facts"]["stable"] in ("yes", "no")
    for fact in ("driver.version", "cpu.load", "before.cpu.load", "memory.available", "plan.digest",
                 "sandbox.nice"):  # fmt: skip
        assert event["facts"][fact], fact


def test_crash_and_hang_are_outcomes_and_the_next_job_runs(warm: Running, jobs: Jobs) -> None:
    crash = outcome_of(warm, jobs.job(SEGFAULT))["outcome"]
    assert crash["kind"] == "crash"
    assert crash["detail"]["exit_code"] == -signal.SIGSEGV
    started = time.monotonic()
    hung = outcome_of(warm, jobs.job(ENDLESS, timeout_s=1.0))["outcome"]
    assert hung == {"kind": "timeout", "detail": {"after_s": 1.0}}
    assert time.monotonic() - started < 30
    assert_is_timed(warm, jobs.job())


@pytest.mark.parametrize(
    ("more", "kind"),
    [("", "timed"), ("if (i == 9) b[i] += 1;", "wrong")],
    ids=["right", "off by one"],
)
def test_integers_come_as_they_are_and_have_to_be_the_same(
    warm: Running, jobs: Jobs, more: str, kind: str
) -> None:
    data, expected = byte_workload()
    plan = byte_plan(f"b[i] = 1000003 * (int)a[i]; {more}")
    outcome = outcome_of(warm, jobs.job(plan, workload=jobs.workload(data, expected)))["outcome"]
    assert outcome["kind"] == kind, outcome


def test_cancelled_job_ends_and_the_next_one_runs(warm: Running, jobs: Jobs) -> None:
    warm.send(**jobs.job(ENDLESS))
    while warm.event().get("stage") != "measuring":
        pass
    time.sleep(0.5)
    warm.send(do="cancel")
    assert [event["event"] for event in warm.until("ready")] == ["cancelled", "ready"]
    assert_is_timed(warm, jobs.job())


def test_job_that_is_cancelled_before_it_is_measured_does_not_begin(
    warm: Running, jobs: Jobs
) -> None:
    started = time.monotonic()
    warm.send(**jobs.job(ENDLESS))
    warm.send(do="cancel")
    assert [event["event"] for event in warm.until("ready")][-2:] == ["cancelled", "ready"]
    assert time.monotonic() - started < 20  # of the 30 s that it might take
    assert_is_timed(warm, jobs.job())


@contextlib.contextmanager
def many_processes(user: int) -> Iterator[None]:
    """So many of a user that none could be added within a sandbox that counted these, too."""
    # In the sandbox 64 are allowed, and 4 for each core, beside those of its start.
    code = (
        "import os, sys, time\n"
        f"os.setresuid({user}, {user}, {user})\n"
        f"for _ in range({64 + 4 * (os.cpu_count() or 1) + 10}):\n"
        "    if not os.fork():\n"
        "        time.sleep(60)\n"
        "        os._exit(0)\n"
        "print(flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, start_new_session=True, cwd="/"
    ) as crowd:
        try:
            assert crowd.stdout is not None and crowd.stdout.readline()
            yield
        finally:
            os.killpg(crowd.pid, signal.SIGKILL)


def test_processes_of_another_sandbox_leave_this_one_its_own(warm: Running, jobs: Jobs) -> None:
    # A linker is started for each kernel. Another agent's sandbox, full of a kernel's processes,
    # took that away while both were the same user, and the driver aborted.
    event = outcome_of(warm, jobs.job())
    if event["facts"]["sandbox.files"] != "own root":
        # The system counts all processes of the agent's user, and the child is one of them.
        assert event["facts"]["sandbox.processes"] == "one group"
        return
    child = Path(f"/proc/{max(descendants(warm.pid))}/status").read_text()
    user = int(child.partition("Uid:")[2].split()[0])
    assert event["facts"]["sandbox.user"] == ("the agent's" if os.getuid() else "its own")
    with Running("host") as other:
        other.until("ready")
        of_other = Path(f"/proc/{max(descendants(other.pid))}/status").read_text()
        crowded = int(of_other.partition("Uid:")[2].split()[0])
        assert os.getuid() or crowded != user
        with many_processes(crowded):
            assert_is_timed(warm, jobs.job())


def test_child_killed_from_outside_gets_another_chance(warm: Running, jobs: Jobs) -> None:
    warm.send(**jobs.job(ENDLESS, timeout_s=2.0))
    while warm.event().get("stage") != "measuring":
        pass
    time.sleep(0.5)
    for pid in descendants(warm.pid):
        os.kill(pid, signal.SIGKILL)
    events = warm.until("ready")
    (outcome,) = [event for event in events if event["event"] == "outcome"]
    # Measured anew, and then it is what it is.
    assert outcome["outcome"]["kind"] == "timeout"
    assert outcome["facts"]["tries"] == "2"


def test_job_that_contradicts_itself_says_why(warm: Running, jobs: Jobs) -> None:
    wrong_schema = jobs.job()
    wrong_schema["payload"]["schema"] = "nestmap/measure-job/9"
    absent = jobs.job()
    absent["artifacts"] = {}
    shape = jobs.job()
    shape["payload"]["workload"]["expected"]["shape"] = [7]
    missing = jobs.job()
    del missing["payload"]["plan"]
    for job, said in ((wrong_schema, "unknown schema"), (absent, "did not come"),
                      (shape, "another size"), (missing, "'plan'")):  # fmt: skip
        outcome = outcome_of(warm, job)["outcome"]
        assert outcome["kind"] == "crash"
        assert "cannot be measured" in outcome["detail"]["message"]
        assert said in outcome["detail"]["message"]
    assert_is_timed(warm, jobs.job())


def test_end_of_the_input_ends_the_child_too(jobs: Jobs) -> None:
    with Running("host") as executor:
        executor.until("ready")
        executor.send(**jobs.job(ENDLESS))
        while executor.event().get("stage") != "measuring":
            pass
        below = descendants(executor.pid)
        assert below
        executor.end()
        end = time.monotonic() + 10
        while any(running(pid) for pid in below) and time.monotonic() < end:
            time.sleep(0.05)
        assert not any(running(pid) for pid in below)


def test_child_has_no_network_and_gives_way(warm: Running, jobs: Jobs) -> None:
    event = outcome_of(warm, jobs.job())
    child = max(descendants(warm.pid))
    assert event["facts"]["sandbox.network"] == "none"
    alone = os.readlink(f"/proc/{child}/ns/net") != os.readlink("/proc/self/ns/net")
    assert alone == (event["facts"]["sandbox.files"] == "own root")
    assert os.getpriority(os.PRIO_PROCESS, child) >= 5
    status = Path(f"/proc/{child}/status").read_text()
    assert "NoNewPrivs:\t1" in status
    limits = Path(f"/proc/{child}/limits").read_text()
    assert "Max open files            1024" in limits


def test_device_that_is_not_there_is_named() -> None:
    with Running("opencl:no such platform/x") as executor:
        (event,) = executor.until("no-device")
        assert "no OpenCL device fits" in event["reason"]


def test_failing_golden_kernel_tries_the_owners_command_once_and_quarantines(
    tmp_path: Path,
) -> None:
    # Any driver that gives no device after all: PoCL of this machine without its linker.
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\necho run >> {tmp_path}/runs\n")
    hook.chmod(0o700)
    with Running(
        "host", f"--reload-command={hook}", "--memory-mb=64"
    ) as executor:  # fmt: skip
        events = executor.until("quarantined")
    assert [event["event"] for event in events] == ["recovering", "quarantined"]
    assert "ended with 0" in events[0]["text"]
    assert "opening the device failed" in events[1]["reason"]
    assert (tmp_path / "runs").read_text() == "run\n"


def test_recording_is_replayed_by_plan(tmp_path: Path, jobs: Jobs) -> None:
    recording = tmp_path / "board.jsonl"
    with Running("null", f"--record={recording}") as executor:
        executor.until("ready")
        recorded = outcome_of(executor, jobs.job())["outcome"]
    with Running(f"recorded:{recording}") as executor:
        (ready,) = executor.until("ready")
        assert ready["facts"]["device.kind"] == "recorded"
        assert outcome_of(executor, jobs.job())["outcome"] == recorded
        unknown = outcome_of(executor, jobs.job("b[i] = a[i];"))["outcome"]
        assert "nothing was recorded" in unknown["detail"]["message"]
    recording.write_text('{"schema": "other"}\n')
    with Running(f"recorded:{recording}") as executor:
        (event,) = executor.until("no-device")
        assert "line 1" in event["reason"]
