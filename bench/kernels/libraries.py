"""The other contestants of ``nestmap bench cpu``: their processes as the bench sees them."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from bench.kernels.operands import Array, Operands
from bench.kernels.turns import Turn
from mapper.errors import DeviceError, InputError, Problem
from mapper.layer_spec import LayerSpec
from worker.measuring.array_files import load_array

_SERVER = Path(__file__).with_name("cpu_server.py")
PEERS_PYTHON = Path(__file__).resolve().parents[2] / ".venv-peers" / "bin" / "python"


@dataclass(frozen=True, slots=True)
class Library:
    """Someone to compare with; ``package`` has to be installed in the peers' environment."""

    key: str
    title: str
    package: str = ""


LIBRARIES = (
    Library("torch", "torch (oneDNN), NCHW", "torch"),
    Library("torch-channels-last", "torch (oneDNN), channels_last", "torch"),
    Library("im2col", "NumPy im2col + BLAS"),
    Library("tvm", "TVM meta_schedule", "apache-tvm"),
)
BY_KEY = {library.key: library for library in LIBRARIES}


class LibraryProcess:
    """One library in a process of its own; a context manager. Everything raises DeviceError."""

    def __init__(self, library: Library, python: Path, threads: int) -> None:
        self.library = library
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        counts = {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        interpreter = python if library.package else Path(sys.executable)
        try:
            self._process = subprocess.Popen(
                [str(interpreter), str(_SERVER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, **counts},
                start_new_session=True,
            )
        except OSError as error:
            raise self._error("cannot be started", str(error)) from error
        threading.Thread(target=self._read, daemon=True).start()
        try:
            answer = self._ask(
                {"op": "hello", "contestant": library.key, "threads": threads}, 120.0
            )
        except DeviceError:
            self.close()
            raise
        self.versions: dict[str, str] = answer["versions"]

    def __enter__(self) -> LibraryProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process with whatever it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def load(
        self, layer: LayerSpec, folder: Path, settings: dict[str, Any], timeout_s: float
    ) -> Array:
        """Make a layer whose operands lie in ``folder`` the one that is timed; its result
        [N][M][OH][OW]."""
        request = {
            "op": "load",
            "folder": str(folder),
            "padding": [layer.pad_top, layer.pad_left, layer.pad_bottom, layer.pad_right],
            "stride": [layer.stride_y, layer.stride_x],
            "dilation": [layer.dilation_y, layer.dilation_x],
            "groups": layer.groups,
            "output": [layer.output_height, layer.output_width],
            **settings,
        }
        self._ask(request, timeout_s)
        try:
            return load_array(folder / f"{self.library.key}.npy", 8 * prod(layer.output_shape))
        except (InputError, OSError) as error:
            raise self._error("left no result", str(error)) from error

    def turn(self, seconds: float, least: int) -> Turn:
        """Run for so many seconds and at least so often."""
        answer = self._ask({"op": "turn", "seconds": seconds, "least": least}, 600.0)
        return Turn(tuple(answer["times"]), answer["wall"], answer["cpu"])

    def _ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._lines.get(timeout=timeout_s)
        except (OSError, ValueError) as error:
            raise self._error("has died", str(error)) from error
        except queue.Empty:
            self.close()
            raise self._error(f"does not answer in {timeout_s:g} s", request["op"]) from None
        if line is None:
            raise self._error("has died", f"exit code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise self._error("cannot do it", str(answer["error"]))
        return answer

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            for line in self._process.stdout:
                self._lines.put(line)
        self._lines.put(None)

    def _error(self, message: str, found: str) -> DeviceError:
        return DeviceError(Problem(self.library.key, message, found))


def save_operands(operands: Operands, folder: Path) -> None:
    """Write a layer's operands for the libraries' processes."""
    folder.mkdir(parents=True)
    np.save(folder / "image.npy", operands.image, allow_pickle=False)
    np.save(folder / "weights.npy", operands.weights, allow_pickle=False)


def installed(python: Path) -> dict[str, str]:
    """The versions of the libraries' packages that this Python has; none if there is none."""
    program = (
        "import contextlib, importlib.metadata as m, json, sys\n"
        "found = {}\n"
        "for name in sys.argv[1:]:\n"
        "    with contextlib.suppress(m.PackageNotFoundError):\n"
        "        found[name] = m.version(name)\n"
        "json.dump(found, sys.stdout)"
    )
    names = sorted({library.package for library in LIBRARIES if library.package})
    try:
        answer = subprocess.run(
            [str(python), "-c", program, *names],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return dict(json.loads(answer.stdout))
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}
