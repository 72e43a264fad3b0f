"""What a board gets of a run: measure jobs, and what they refer to as artifacts.

Arrays are files of raw little-endian numbers, all files are named by their hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.elements import Element
from mapper.host_plan import HostPlan
from mapper.pipeline import Subject
from nestmap.tasks.replies import Replies
from nestmap.tuning.policy import INPUT_SEED
from nestmap.tuning.reference import make_workload
from worker.measuring.settings import Protocol, Tolerance

JOB_SCHEMA = "nestmap/measure-job/1"
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
    expected = workload.expected.astype(np.float64 if whole else np.float32)
    return arrays_json(workload.inputs, expected, workload.tolerance, spool)


def arrays_json(
    inputs: Mapping[str, NDArray[Any]],
    expected: NDArray[Any],
    tolerance: Tolerance,
    spool: Spool,
) -> dict[str, Any]:
    """The ``workload`` of arrays, which go into the spool; numbers of any shape."""
    return {
        "inputs": {name: _array(array, spool) for name, array in inputs.items()},
        "expected": _array(expected, spool),
        "tolerance": tolerance.to_json(),
    }


def measure_job(
    candidate: str,
    plan: HostPlan,
    workload: Mapping[str, Any],
    protocol: Protocol,
    timeout_s: float,
    spool: Spool,
) -> tuple[dict[str, Any], list[str]]:
    """The payload of a candidate, :data:`JOB_SCHEMA`, with the hashes of what it refers to.

    ``workload`` is as :func:`arrays_json` makes it; the plan's source goes into the spool.
    """
    written = plan.to_json()
    source = spool.put(written.pop("source").encode(), SOURCE)
    payload = {
        "schema": JOB_SCHEMA,
        "candidate": candidate,
        "plan": {**written, "source": {"artifact": source}},
        "workload": workload,
        "protocol": protocol.to_json(),
        "timeout_s": timeout_s,
    }
    arrays = [*workload["inputs"].values(), workload["expected"]]
    return payload, [source, *(array["artifact"] for array in arrays)]


def _array(array: NDArray[Any], spool: Spool) -> dict[str, Any]:
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return {
        "artifact": spool.put(little.tobytes(), RAW),
        "dtype": array.dtype.name,
        "shape": list(array.shape),
    }
