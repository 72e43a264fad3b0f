"""Kernels under test run in a process of their own, so that no driver ends the tests.

:func:`run_once` is :func:`worker.run_plan.run_once` in a child that stays for the next kernel.
Where the child dies or hangs, the test fails that ran the kernel, and another child takes its
place.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mapper.errors import DeviceError, InputError, Problem
from mapper.host_plan import HostPlan
from worker.measuring.child_process import signal_text

_ROOT = Path(__file__).resolve().parents[1]
_STDERR_CHARACTERS = 2000
#: For one plan, the start of a child and PoCL's compiler included.
TIMEOUT_S = 120.0


class _Child:
    """Runs plans one after the other; started when it is first needed."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._folder = tempfile.TemporaryDirectory(prefix="nestmap-kernels-")
        self._process: subprocess.Popen[str] | None = None
        atexit.register(self.close)

    def run(
        self, plan: HostPlan, inputs: Mapping[str, np.ndarray[Any, Any]], device: str
    ) -> np.ndarray[Any, Any]:
        folder = Path(self._folder.name)
        (folder / "plan.json").write_text(json.dumps(plan.to_json()), encoding="utf-8")
        arrays: dict[str, Any] = dict(inputs)
        np.savez(folder / "inputs.npz", **arrays)
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        watch = threading.Timer(self._timeout_s, end)
        watch.start()
        try:
            process.stdin.write(f"{folder} {device}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            watch.cancel()
        if not answer:
            code = process.wait()
            self._process = None
            errors = (folder / "stderr.txt").read_text(errors="replace")[-_STDERR_CHARACTERS:]
            kernels = ", ".join(launch.kernel for launch in plan.launches)
            what = (
                f"the driver took over {self._timeout_s:g} s to build and run {kernels}"
                if late.is_set()
                else f"the driver died of {signal_text(code)} while it built or ran {kernels}"
            )
            pytest.fail(
                f"{what}:\n{errors}\n{plan.source}",
                pytrace=False,
            )
        said = json.loads(answer)
        if said:
            kind = DeviceError if said["kind"] == "device" else InputError
            raise kind([Problem(**problem) for problem in said["problems"]])
        return np.load(folder / "output.npy", allow_pickle=False)

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            search = (str(_ROOT), os.environ.get("PYTHONPATH", ""))
            with (Path(self._folder.name) / "stderr.txt").open("wb") as errors:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.kernel_child"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    cwd=_ROOT,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, search))},
                )
        return self._process

    def close(self) -> None:
        """End the child and remove its folder."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process = None
        self._folder.cleanup()


_children: list[_Child] = []


def run_once(
    plan: HostPlan, inputs: Mapping[str, np.ndarray[Any, Any]], device: str = "host"
) -> np.ndarray[Any, Any]:
    """Run a plan once and return its output; fails the test where the driver dies of it or hangs.

    Raises InputError and DeviceError as :func:`worker.run_plan.run_once` does.
    """
    if not _children:
        _children.append(_Child())
    return _children[0].run(plan, inputs, device)
