"""Workloads on disk: inputs and references that parents write and measuring children read."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mapper.errors import InputError, Problem
from mapper.host_plan import HostPlan
from worker.measuring.checks import (
    InputShapes,
    InputTypes,
    check_plan,
    check_workload,
    output_buffer,
)

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class StoredWorkload:
    """Where a workload's arrays lie, what shapes they have and how their elements are stored."""

    directory: Path
    input_shapes: InputShapes
    input_types: InputTypes
    expected_shape: tuple[int, ...]


class Workloads:
    """A private directory with workloads by key; may be shared by threads and children.

    ``root`` has room for children's own folders beside ``root/workloads``, which a child in a
    sandbox sees as another user.
    """

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(
            prefix="nestmap-measuring-", ignore_cleanup_errors=True
        )
        self.root = Path(self._directory.name)
        self.folder = self.root / "workloads"
        self.folder.mkdir(mode=0o755)
        self._lock = threading.Lock()
        self._known: dict[str, StoredWorkload] = {}
        self._stored = 0

    def close(self) -> None:
        """Remove everything."""
        self._directory.cleanup()

    def upload(self, key: str, inputs: Mapping[str, Array], expected: Array) -> None:
        """Store inputs (of element types) and the reference under ``key``; raises InputError.

        What was there under that key goes.
        """
        check_workload(inputs, expected)
        stored = self.store(inputs, expected)
        self.drop(key)
        with self._lock:
            self._known[key] = stored

    def drop(self, key: str) -> None:
        """Remove a workload's files; nothing happens when there are none."""
        with self._lock:
            workload = self._known.pop(key, None)
        if workload is not None:
            for path in workload.directory.iterdir():
                path.unlink()
            workload.directory.rmdir()

    def store(self, inputs: Mapping[str, Array], expected: Array) -> StoredWorkload:
        """Write arrays that have no key, and say where they are."""
        if any(len(name.splitlines()) != 1 for name in inputs):
            raise InputError(Problem("inputs", "an input's name is empty or has line breaks"))
        # Numbered, not named by key: keys and input names come from users.
        with self._lock:
            directory = self.folder / str(self._stored)
            self._stored += 1
        directory.mkdir()
        (directory / "names.txt").write_text("\n".join(inputs), encoding="utf-8")
        for index, array in enumerate(inputs.values()):
            np.save(directory / f"input{index}.npy", array, allow_pickle=False)
        np.save(directory / "expected.npy", expected, allow_pickle=False)
        # The folder above is private; what lies in it is read by whoever the child is.
        for path, mode in ((directory, 0o755), *((file, 0o644) for file in directory.iterdir())):
            path.chmod(mode)
        return StoredWorkload(
            directory,
            {name: array.shape for name, array in inputs.items()},
            {name: array.dtype for name, array in inputs.items()},
            expected.shape,
        )

    def require(self, key: str, plan: HostPlan) -> StoredWorkload:
        """The workload of a key, which ``plan`` must fit; InputError with every contradiction."""
        with self._lock:
            stored = self._known.get(key)
        if stored is None:
            raise InputError(Problem("workload", "was never uploaded", found=repr(key)))
        check_plan(plan, stored.input_shapes, stored.input_types)
        output = output_buffer(plan)
        if output.shape != stored.expected_shape:
            raise InputError(
                Problem(
                    "plan/buffers",
                    f"output {output.name} has not the reference's shape",
                    str(output.shape),
                    str(stored.expected_shape),
                )
            )
        return stored


def load_workload(directory: Path) -> tuple[dict[str, Array], Array]:
    """A stored workload's inputs and reference, mapped: children share the memory of one."""
    names = (directory / "names.txt").read_text(encoding="utf-8").splitlines()
    inputs = {name: _mapped(directory / f"input{index}.npy") for index, name in enumerate(names)}
    return inputs, _mapped(directory / "expected.npy")


def _mapped(path: Path) -> Array:
    # Nothing is unpickled: a file of objects is refused. Of the memory that is mapped nobody can
    # write a byte, a kernel that runs astray in this process neither.
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
