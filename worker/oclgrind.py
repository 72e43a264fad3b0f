"""Checking plans in Oclgrind, an OpenCL simulator that shares nothing with a real driver.

It finds what a lucky run on a device hides: data races, reads of memory that was never
written, work-items that miss a barrier, accesses outside a buffer. About a thousand times
slower than a device: for small layers only.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np

from mapper.errors import DeviceError, InputError, Problem
from mapper.host_plan import HostPlan
from worker.measuring.array_files import load_array
from worker.measuring.checks import check_plan, check_workload
from worker.measuring.child_process import signal_text
from worker.measuring.comparison import compare
from worker.measuring.settings import DEFAULT_TOLERANCE, Tolerance

_PACKAGE_ROOT = Path(__file__).resolve().parents[1]
#: One bad line of a kernel repeats for every work-item; the first few say it all.
_MAX_ERRORS = 20
#: Seconds for Python and the simulator to start on a machine that is busy.
_START_S = 60.0


class FindingKind(StrEnum):
    """What is wrong with a plan."""

    DATA_RACE = "data-race"
    UNINITIALIZED = "uninitialized"
    DIVERGENCE = "divergence"
    INVALID_ACCESS = "invalid-access"
    WRONG_OUTPUT = "wrong-output"
    TIMEOUT = "timeout"
    FAILED = "failed"
    OTHER = "other"


#: Beginnings or parts of Oclgrind's messages, lower case.
_MARKS: tuple[tuple[str, FindingKind], ...] = (
    ("data race", FindingKind.DATA_RACE),
    ("uninitialized", FindingKind.UNINITIALIZED),
    ("divergence", FindingKind.DIVERGENCE),
    ("invalid read", FindingKind.INVALID_ACCESS),
    ("invalid write", FindingKind.INVALID_ACCESS),
    ("invalid", FindingKind.INVALID_ACCESS),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem; ``message`` is the simulator's text with kernel, work-item and line."""

    kind: FindingKind
    message: str


@dataclass(frozen=True, slots=True)
class OclgrindReport:
    """What the check found; ``ok`` when nothing was found and the output is right."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether the plan is clean."""
        return not self.findings

    @property
    def messages(self) -> tuple[str, ...]:
        """The findings' texts."""
        return tuple(finding.message for finding in self.findings)

    @property
    def kinds(self) -> frozenset[FindingKind]:
        """The kinds of problems found."""
        return frozenset(finding.kind for finding in self.findings)


@dataclass(frozen=True, slots=True)
class Simulation:
    """A plan with its inputs by buffer name and the output that is right."""

    plan: HostPlan
    inputs: Mapping[str, np.ndarray[Any, Any]]
    expected: np.ndarray[Any, Any]
    tolerance: Tolerance = DEFAULT_TOLERANCE


def check(
    plan: HostPlan,
    inputs: Mapping[str, np.ndarray[Any, Any]],
    expected: np.ndarray[Any, Any],
    *,
    tolerance: Tolerance = DEFAULT_TOLERANCE,
    timeout_s: float = 120.0,
    uniform_writes: bool = False,
) -> OclgrindReport:
    """Run ``plan`` once in the simulator and compare its output with ``expected``.

    As :func:`check_many` with a single plan.
    """
    simulation = Simulation(plan, inputs, expected, tolerance)
    return check_many((simulation,), timeout_s=timeout_s, uniform_writes=uniform_writes)[0]


def check_many(
    simulations: Sequence[Simulation], *, timeout_s: float = 120.0, uniform_writes: bool = False
) -> tuple[OclgrindReport, ...]:
    """Run each plan once in one start of the simulator; a report each, in their order.

    Each plan runs in a process forked for it, ``timeout_s`` at most: one that hangs or takes
    the simulator down is a finding of its own, and the others run. ``uniform_writes`` also
    reports several work-items that write the same value to one place, a race that does no
    harm on any known device. Raises InputError for arguments that contradict each other and
    DeviceError when Oclgrind is not installed or does not start.
    """
    for item in simulations:
        check_workload(item.inputs, item.expected)
        check_plan(
            item.plan,
            {name: array.shape for name, array in item.inputs.items()},
            {name: array.dtype for name, array in item.inputs.items()},
        )
    program = shutil.which("oclgrind")
    if program is None:
        raise DeviceError(
            Problem("oclgrind", "is not installed", remedy="apt-get install oclgrind")
        )
    with tempfile.TemporaryDirectory(prefix="nestmap-oclgrind-") as name:
        folder = Path(name)
        places = [folder / "plans" / str(number) for number in range(len(simulations))]
        for place, item in zip(places, simulations, strict=True):
            place.mkdir(parents=True)
            (place / "plan.json").write_text(json.dumps(item.plan.to_json()), encoding="utf-8")
            _save_inputs(place / "inputs.npz", item.inputs)
        if simulations:
            options = _options([item.plan for item in simulations], uniform_writes)
            command = [program, *options, sys.executable, "-m", "worker.simulated_plans"]
            _run_all([*command, str(folder / "plans"), str(timeout_s)], folder, places, timeout_s)
        return tuple(
            OclgrindReport(tuple(_findings(place, item, timeout_s)))
            for place, item in zip(places, simulations, strict=True)
        )


def _findings(place: Path, item: Simulation, timeout_s: float) -> list[Finding]:
    findings = _parse(place / "log.txt")
    status = int((place / "exit.txt").read_text())
    exit_code = os.waitstatus_to_exitcode(status)
    if exit_code == -signal.SIGALRM:
        return [*findings, Finding(FindingKind.TIMEOUT, f"not done after {timeout_s} s")]
    if exit_code:
        text = (place / "stderr.txt").read_text(errors="replace")[-4000:].strip()
        return [*findings, Finding(FindingKind.FAILED, f"{signal_text(exit_code)}: {text}")]
    try:
        output = load_array(place / "out.npy", 8 * item.expected.size)
    except (InputError, OSError) as error:
        return [*findings, Finding(FindingKind.WRONG_OUTPUT, str(error))]
    return findings + _wrong_output(output, item.expected, item.tolerance)


def _save_inputs(path: Path, inputs: Mapping[str, np.ndarray[Any, Any]]) -> None:
    # Not np.savez: an input may bear the name of one of its parameters.
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in inputs.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def _options(plans: Sequence[HostPlan], uniform_writes: bool) -> list[str]:
    # The simulated device is made large enough for the plans: limits are checked elsewhere.
    launches = [launch for plan in plans for launch in plan.launches]
    group = max((prod(launch.local_size) for launch in launches), default=1)
    local = max((launch.local_bytes for launch in launches), default=0)
    memory = max(plan.memory_bytes for plan in plans)
    options = [
        "--data-races",
        "--uninitialized",
        f"--max-errors={_MAX_ERRORS}",
        f"--max-wgsize={max(group, 1024)}",
        f"--local-mem-size={max(local, 32 * 1024)}",
        f"--global-mem-size={max(8 * memory, 128 * 1024 * 1024)}",
        # The simulator's compiler would optimise faults away: it folds values that were never
        # written and forwards stores past other work-items' writes.
        "--build-options=-cl-opt-disable",
    ]
    # Oclgrind takes a value as the next word only.
    words = [word for option in options for word in option.split("=", 1)]
    return [*words, "--uniform-writes"] if uniform_writes else words


def _run_all(command: list[str], folder: Path, places: list[Path], timeout_s: float) -> None:
    """Start the simulator until every plan has ended; a plan that ends it is given up."""
    while open_places := [place for place in places if not (place / "exit.txt").exists()]:
        exit_code = _run(command, folder, _START_S + (timeout_s + 1) * len(open_places))
        left = [place for place in open_places if not (place / "exit.txt").exists()]
        if len(left) < len(open_places):
            continue
        if not (left[0] / "stderr.txt").exists():
            text = (folder / "stderr.txt").read_text(errors="replace")[-2000:].strip()
            raise DeviceError(
                Problem("oclgrind", f"does not start: {signal_text(exit_code)}", found=text)
            )
        (left[0] / "exit.txt").write_text(str(int(signal.SIGKILL)))


def _run(command: list[str], folder: Path, timeout_s: float) -> int:
    """Run the simulator in its own process group; its exit code, killed at the latest in time."""
    search = (str(_PACKAGE_ROOT), os.environ.get("PYTHONPATH", ""))
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("OCLGRIND_")},
        "PYTHONPATH": os.pathsep.join(part for part in search if part),
        "PYOPENCL_NO_CACHE": "1",
        "TMPDIR": str(folder),
    }
    with (folder / "stderr.txt").open("wb") as stderr:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=environment,
            start_new_session=True,
        )
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL
        finally:
            # The group outlives its leader where that crashed while a plan ran.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _parse(log: Path) -> list[Finding]:
    """The simulator's findings: a flush-left title followed by indented lines, each."""
    if not log.exists():
        return []
    blocks: list[list[str]] = []
    for line in log.read_text(errors="replace").splitlines():
        if not line.strip() or line.startswith("Oclgrind:"):
            continue
        if line[0].isspace() and blocks:
            blocks[-1].append(line)
        else:
            blocks.append([line])
    return [
        Finding(_kind(lines[0]), "\n".join([lines[0], dedent("\n".join(lines[1:]))]).strip())
        for lines in blocks
    ]


def _kind(title: str) -> FindingKind:
    lowered = title.lower()
    for mark, kind in _MARKS:
        if mark in lowered:
            return kind
    return FindingKind.OTHER


def _wrong_output(
    output: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], tolerance: Tolerance
) -> list[Finding]:
    if output.shape != expected.shape:
        message = f"the output's shape is {output.shape}; the reference's is {expected.shape}"
        return [Finding(FindingKind.WRONG_OUTPUT, message)]
    wrong = compare(output, expected, tolerance).wrong
    return [] if wrong is None else [Finding(FindingKind.WRONG_OUTPUT, wrong.message)]
