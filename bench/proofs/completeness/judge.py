"""Judging plans: a simulator or device in a child process, one plan after the other.

Starting Oclgrind takes half a second and a small plan a hundredth, so one child judges many.
A child that crashes or hangs is ended, the plan at fault is marked, and a fresh child goes on.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from mapper.errors import DeviceError, Problem
from mapper.host_plan import HostPlan

_PACKAGE_ROOT = Path(__file__).resolve().parents[3]
#: Beginnings of Oclgrind's titles, lower case, and what they mean.
_MARKS = (
    ("read-write data race", "data-race"),
    ("write-write data race", "data-race"),
    ("uninitialized", "uninitialised"),
    ("divergence", "divergence"),
    ("invalid", "out-of-bounds"),
)


class Verdict(StrEnum):
    """What became of a plan."""

    RIGHT = "right"
    SAME_VALUE_RACE = "same-value-race"
    RACE = "race"
    WRONG = "wrong"
    CRASH = "crash"


@dataclass(frozen=True, slots=True)
class Case:
    """Inputs of a program and the output that the interpreter gives for them."""

    inputs: Mapping[str, NDArray[np.float32]]
    expected: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Run:
    """One run: kinds of findings of the simulator, and whether the output was right."""

    findings: frozenset[str]
    output_right: bool


class _Child:
    """A process that runs plans of one case; a context manager."""

    def __init__(self, case: Case, device: str, options: tuple[str, ...], timeout_s: float) -> None:
        self._case = case
        self._device = device
        self._options = options
        self._timeout_s = timeout_s
        self._folder = Path(tempfile.mkdtemp(prefix="nestmap-judge-"))
        self._log = self._folder / "log.txt"
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, plan: HostPlan) -> _Run:
        """Run one plan; a crash or a hang is a finding."""
        process = self._process or self._start()
        stdin = _pipe(process.stdin)
        stdin.write(json.dumps(plan.to_json()) + "\n")
        stdin.flush()
        line = self._answer(process)
        if not line:
            self._end()
            return _Run(frozenset({"crash"}), False)
        answer = json.loads(line)
        findings = self._logged()
        if "failure" in answer:
            return _Run(findings | {"failed"}, False)
        output = np.array([float.fromhex(v) for v in answer["output"]], dtype=np.float64)
        right = output.size == self._case.expected.size and np.allclose(
            output, self._case.expected.ravel(), rtol=1e-5, atol=1e-5
        )
        return _Run(findings, bool(right))

    def _answer(self, process: subprocess.Popen[str]) -> str:
        stdout = _pipe(process.stdout)
        ready, _, _ = select.select([stdout], [], [], self._timeout_s)
        return stdout.readline() if ready else ""

    def _logged(self) -> frozenset[str]:
        if not self._options:
            return frozenset()
        # Written anew for each context, and each plan has its own.
        titles = [
            line.lower()
            for line in self._log.read_text(errors="replace").splitlines()
            if line and not line[0].isspace() and not line.startswith("Oclgrind:")
        ]
        return frozenset(
            next((kind for mark, kind in _MARKS if mark in title), "other") for title in titles
        )

    def _start(self) -> subprocess.Popen[str]:
        command = [*self._options, sys.executable, "-m", "bench.proofs.completeness.judge_main"]
        if self._options:
            command[1:1] = ["--log", str(self._log)]
        search = (str(_PACKAGE_ROOT), os.environ.get("PYTHONPATH", ""))
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("OCLGRIND_")},
            "PYTHONPATH": os.pathsep.join(part for part in search if part),
            "PYOPENCL_NO_CACHE": "1",
            "POCL_CACHE_DIR": str(self._folder / "pocl"),
            "TMPDIR": str(self._folder),
        }
        with (self._folder / "stderr.txt").open("wb") as stderr:
            process = self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
                text=True,
                start_new_session=True,
            )
        inputs = {name: array.tolist() for name, array in self._case.inputs.items()}
        head = {"device": self._device, "inputs": inputs, "simulated": bool(self._options)}
        stdin = _pipe(process.stdin)
        stdin.write(json.dumps(head) + "\n")
        stdin.flush()
        if self._answer(process) != "ready\n":
            self._end()
            text = (self._folder / "stderr.txt").read_text(errors="replace")[-2000:].strip()
            raise DeviceError(Problem(command[0], "does not start", found=text))
        return process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            _pipe(process.stdin).close()
            _pipe(process.stdout).close()


def _pipe(stream: IO[Any] | None) -> IO[Any]:
    assert stream is not None
    return stream


def oclgrind_command(*, uniform_writes: bool) -> tuple[str, ...]:
    """The simulator with its checks; DeviceError when it is not installed."""
    program = shutil.which("oclgrind")
    if program is None:
        raise DeviceError(
            Problem("oclgrind", "is not installed", remedy="apt-get install oclgrind")
        )
    # Optimisation would fold faults away; errors that are not logged would not be seen.
    options = ("--data-races", "--uninitialized", "--max-errors", "1000000000")
    unoptimised = ("--build-options", "-cl-opt-disable")
    return (program, *options, *unoptimised, *(("--uniform-writes",) if uniform_writes else ()))


class Judge:
    """Verdicts on the plans of one case; a context manager.

    A plan is right if Oclgrind finds nothing and the output is the interpreter's. Several
    work-items that write one value to one place are a race by the OpenCL memory model, told
    apart as ``same-value-race``: it harms on no device that we know.
    """

    def __init__(self, case: Case, *, timeout_s: float = 20.0) -> None:
        self._strict = _Child(case, "0", oclgrind_command(uniform_writes=True), timeout_s)
        self._plain = _Child(case, "0", oclgrind_command(uniform_writes=False), timeout_s)
        self._device = _Child(case, "host", (), timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in (self._strict, self._plain, self._device):
            child.__exit__(kind, error, trace)

    def verdict(self, plan: HostPlan) -> Verdict:
        """What becomes of a plan in the simulator."""
        run = self._strict.run(plan)
        if "crash" in run.findings:
            return Verdict.CRASH
        if not run.output_right or run.findings - {"data-race"}:
            return Verdict.WRONG
        if not run.findings:
            return Verdict.RIGHT
        again = self._plain.run(plan)
        return Verdict.RACE if again.findings else Verdict.SAME_VALUE_RACE

    def device_agrees(self, plan: HostPlan) -> bool:
        """Whether PoCL computes what the interpreter does."""
        return self._device.run(plan).output_right
