"""Measure jobs as the executor reads them, and outcomes as it answers.

A payload, ``nestmap/measure-job/1``::

    {"schema": "nestmap/measure-job/1",
     "candidate": "cand_…",
     "plan": <host plan JSON, with "source": {"artifact": <sha256 of its UTF-8 text>}>,
     "workload": {
       "inputs": {<buffer>: {"artifact": <sha256>, "dtype": "float32", "shape": [64, 3, 3]}},
       "expected": {"artifact": <sha256>, "dtype": "float64" | "float32", "shape": […]},
       "tolerance": {"accumulation_length": 576, "factor": 8.0}},
     "protocol": {"warmup": 2, "repetitions": 10, …},
     "timeout_s": 60.0}

Arrays are plain bytes: little-endian, row-major, nothing before or after; those of inputs are of
element types (``int8`` and so on), ``tolerance`` has what is computed in as ``dtype`` where that is
not ``float32``. An outcome is
``{"kind": …, "detail": {…}}`` and, if timed, ``"trials_ns": […], "spans_ns": […]``: the columns of
a measurement.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from mapper.elements import Element
from mapper.errors import InputError, Problem
from mapper.host_plan import HostPlan
from mapper.measurement import Outcome, Timed, outcome_detail, outcome_kind
from worker.measuring.kernel_text import refuse_foreign_text
from worker.measuring.settings import Protocol, Tolerance

SCHEMA = "nestmap/measure-job/1"
MAX_SOURCE_BYTES = 16 * 1024 * 1024
_DTYPES = {name: np.dtype(name).newbyteorder("<") for name in (*Element, "float64")}
_MOST_DIMENSIONS = 16
_LONGEST_TIMEOUT_S = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class ArrayFile:
    """An array in a file of plain bytes."""

    digest: str
    path: Path
    dtype: str
    shape: tuple[int, ...]

    def load(self) -> np.ndarray[Any, Any]:
        """The array, mapped from its file; InputError if the file has another size."""
        wanted = np.dtype(_DTYPES[self.dtype]).itemsize * prod(self.shape)
        found = self.path.stat().st_size
        if found != wanted:
            problem = Problem(f"artifact {self.digest}", "has another size than its array",
                              f"{found} bytes", f"{wanted} bytes")  # fmt: skip
            raise InputError(problem)
        return np.memmap(self.path, dtype=_DTYPES[self.dtype], mode="r", shape=self.shape)


@dataclass(frozen=True, slots=True)
class MeasureJob:
    """What is to be measured, on which data, and how."""

    candidate: str
    plan: HostPlan
    inputs: Mapping[str, ArrayFile]
    expected: ArrayFile
    tolerance: Tolerance
    protocol: Protocol
    timeout_s: float

    @property
    def workload_key(self) -> str:
        """The same for the same arrays, whatever the candidate."""
        parts = [f"{name} {a.digest} {a.shape}" for name, a in sorted(self.inputs.items())]
        parts.append(f"{self.expected.digest} {self.expected.dtype} {self.expected.shape}")
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    @staticmethod
    def of(payload: Any, artifacts: Mapping[str, str], limit_s: float) -> MeasureJob:
        """Read a payload; ``artifacts`` are files by hash, ``limit_s`` bounds the timeout.

        Raises InputError for whatever is not as the schema says.
        """
        try:
            if payload["schema"] != SCHEMA:
                raise InputError(
                    Problem("/schema", "unknown schema", ascii(payload["schema"])[:80], SCHEMA,
                            "install a newer agent")
                )  # fmt: skip
            workload = payload["workload"]
            timeout_s = float(payload["timeout_s"])
            if not (math.isfinite(timeout_s) and timeout_s > 0):
                raise InputError(Problem("/timeout_s", "must be positive", str(timeout_s)))
            return MeasureJob(
                candidate=str(payload["candidate"]),
                plan=_plan(payload["plan"], artifacts),
                inputs={
                    str(name): _array(value, f"/workload/inputs/{name}", artifacts)
                    for name, value in workload["inputs"].items()
                },
                expected=_array(workload["expected"], "/workload/expected", artifacts),
                tolerance=Tolerance(**workload["tolerance"]),
                protocol=Protocol(**payload["protocol"]),
                timeout_s=min(timeout_s, limit_s, _LONGEST_TIMEOUT_S),
            )
        except (
            KeyError, TypeError, ValueError, AttributeError, OSError, OverflowError,
        ) as error:  # fmt: skip
            found = repr(error)[:300]
            raise InputError(Problem("payload", "is not as its schema says", found)) from None


def _file(reference: Any, path: str, artifacts: Mapping[str, str]) -> tuple[str, Path]:
    digest = reference["artifact"]
    if digest not in artifacts:
        raise InputError(Problem(path, "refers to an artifact that did not come", str(digest)[:80]))
    return digest, Path(artifacts[digest])


def _plan(value: Any, artifacts: Mapping[str, str]) -> HostPlan:
    """A host plan whose source stands in an artifact, or in the plan itself."""
    source = value["source"]
    if not isinstance(source, str):
        _, path = _file(source, "/plan/source", artifacts)
        if path.stat().st_size > MAX_SOURCE_BYTES:
            raise InputError(Problem("/plan/source", "is too large", allowed=str(MAX_SOURCE_BYTES)))
        source = path.read_text(encoding="utf-8")
    refuse_foreign_text(source)
    return HostPlan.from_json({**value, "source": source})


def _array(value: Any, path: str, artifacts: Mapping[str, str]) -> ArrayFile:
    digest, file = _file(value, path, artifacts)
    if value["dtype"] not in _DTYPES:
        allowed = ", ".join(_DTYPES)
        raise InputError(Problem(f"{path}/dtype", "unknown type", str(value["dtype"]), allowed))
    shape = tuple(value["shape"])
    if len(shape) > _MOST_DIMENSIONS or not all(
        type(size) is int and 0 < size < 2**31 for size in shape
    ):
        raise InputError(Problem(f"{path}/shape", "is no shape", str(shape)[:80]))
    return ArrayFile(digest, file, value["dtype"], shape)


def outcome_to_result(outcome: Outcome) -> dict[str, Any]:
    """An outcome as a result carries it; NaN and infinities by name, since JSON has none."""
    result: dict[str, Any] = {"kind": outcome_kind(outcome), "detail": outcome_detail(outcome)}
    if isinstance(outcome, Timed):
        result["trials_ns"] = list(outcome.trials_ns)
        if outcome.spans_ns:
            result["spans_ns"] = list(outcome.spans_ns)
    return result
