"""Checking a plan in Oclgrind, an OpenCL simulator that shares nothing with a real driver.

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
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np

from mapper.errors import DeviceError, Problem
from mapper.host_plan import HostPlan
from worker.measuring.checks import check_plan, check_workload
from worker.measuring.comparison import compare
from worker.measuring.settings import DEFAULT_TOLERANCE, Tolerance

_PACKAGE_ROOT = Path(__file__).resolve().parents[1]
#: One bad line of a kernel repeats for every work-item; the first few say it all.
_MAX_ERRORS = 20


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

    ``uniform_writes`` also reports several work-items that write the same value to one
    place, a race that does no harm on any known device. Raises InputError for arguments
    that contradict each other and DeviceError when Oclgrind is not installed.
    """
    check_workload(inputs, expected)
    check_plan(plan, {name: array.shape for name, array in inputs.items()})
    program = shutil.which("oclgrind")
    if program is None:
        raise DeviceError(
            Problem("oclgrind", "is not installed", remedy="apt-get install oclgrind")
        )
    with tempfile.TemporaryDirectory(prefix="nestmap-oclgrind-") as name:
        folder = Path(name)
        (folder / "plan.json").write_text(json.dumps(plan.to_json()), encoding="utf-8")
        _save_inputs(folder / "inputs.npz", inputs)
        command = [program, *_options(plan, folder, uniform_writes), sys.executable]
        command += ["-m", "worker.run_plan", *(str(folder / file) for file in _FILES)]
        failure = _run(command, folder, timeout_s)
        findings = _parse(folder / "log.txt")
        if failure is not None:
            findings.append(failure)
        elif not (folder / "out.npy").exists():
            findings.append(Finding(FindingKind.FAILED, "the simulator wrote no output"))
        else:
            output = np.load(folder / "out.npy", allow_pickle=False)
            findings += _wrong_output(output, expected, tolerance)
    return OclgrindReport(tuple(findings))


_FILES = ("plan.json", "inputs.npz", "out.npy")


def _save_inputs(path: Path, inputs: Mapping[str, np.ndarray[Any, Any]]) -> None:
    # Not np.savez: an input may bear the name of one of its parameters.
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in inputs.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def _options(plan: HostPlan, folder: Path, uniform_writes: bool) -> list[str]:
    # The simulated device is made large enough for the plan: limits are checked elsewhere.
    group = max((prod(launch.local_size) for launch in plan.launches), default=1)
    local = max((launch.local_bytes for launch in plan.launches), default=0)
    options = [
        "--data-races",
        "--uninitialized",
        f"--max-errors={_MAX_ERRORS}",
        f"--log={folder / 'log.txt'}",
        f"--max-wgsize={max(group, 1024)}",
        f"--local-mem-size={max(local, 32 * 1024)}",
        f"--global-mem-size={max(8 * plan.memory_bytes, 128 * 1024 * 1024)}",
        # The simulator's compiler would optimise faults away: it folds values that were never
        # written and forwards stores past other work-items' writes.
        "--build-options=-cl-opt-disable",
    ]
    # Oclgrind takes a value as the next word only.
    words = [word for option in options for word in option.split("=", 1)]
    return [*words, "--uniform-writes"] if uniform_writes else words


def _run(command: list[str], folder: Path, timeout_s: float) -> Finding | None:
    """Run the simulator in its own process group; what went wrong, if anything."""
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
            exit_code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return Finding(FindingKind.TIMEOUT, f"not done after {timeout_s} s")
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if exit_code == 0:
        return None
    text = (folder / "stderr.txt").read_text(errors="replace")[-4000:].strip()
    return Finding(FindingKind.FAILED, f"exit code {exit_code}: {text}")


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
