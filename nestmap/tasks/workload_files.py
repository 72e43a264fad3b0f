"""Inputs and reference of a run as artifacts: files of raw little-endian numbers, named by hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.elements import Element
from mapper.pipeline import Subject
from nestmap.tasks.replies import Replies
from nestmap.tuning.policy import INPUT_SEED
from nestmap.tuning.reference import make_workload

RAW = "application/octet-stream"
SOURCE = "text/x-opencl-src"


class Spool:
    """A folder that the caller reads artifacts from; each is announced once."""

    def __init__(self, folder: Path, replies: Replies) -> None:
        self._folder = folder
        self._replies = replies
        self._written: set[str] = set()

    def put(self, data: bytes, media_type: str) -> str:
        """Write bytes unless they are there, and announce them; their SHA-256."""
        name = hashlib.sha256(data).hexdigest()
        if name not in self._written:
            self._written.add(name)
            (self._folder / name).write_bytes(data)
            self._replies.item(
                {"artifact": {"hash": name, "bytes": len(data), "media_type": media_type}}
            )
        return name


def workload_json(subject: Subject, parameters: Mapping[str, int], spool: Spool) -> dict[str, Any]:
    """The ``workload`` of a measure job; its arrays go into the spool.

    The same for every variant of a layer, since the layer says what is computed.
    """
    workload = make_workload(subject, INPUT_SEED, parameters)
    # 32-bit floats would not hold every integer.
    whole = Element(workload.tolerance.dtype).is_integer
    return {
        "inputs": {name: _array(array, spool) for name, array in workload.inputs.items()},
        "expected": _array(workload.expected.astype(np.float64 if whole else np.float32), spool),
        "tolerance": workload.tolerance.to_json(),
    }


def _array(array: NDArray[Any], spool: Spool) -> dict[str, Any]:
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return {
        "artifact": spool.put(little.tobytes(), RAW),
        "dtype": array.dtype.name,
        "shape": list(array.shape),
    }


def artifacts_of(workload: Mapping[str, Any]) -> list[str]:
    """The hashes that a workload refers to."""
    return [*(entry["artifact"] for entry in workload["inputs"].values()),
            workload["expected"]["artifact"]]  # fmt: skip
