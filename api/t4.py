"""Measurements as T4 results, the autotuning community's format (version 1.0.0).

T4 is the results schema of https://github.com/odgaard/TuningSchema, which Kernel Tuner writes
and its tools read; Kernel Tuner carries it as ``schema/T4/1.0.0/results-schema.json``. The
schema names the time of compiling ``compilation_time``, Kernel Tuner's writer ``compilation``:
both are given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, assert_never

from mapper.measurement import (
    CompileError,
    Crash,
    Outcome,
    ResourceError,
    Timed,
    Timeout,
    Wrong,
)

SCHEMA_VERSION = "1.0.0"
OBJECTIVES = ("time", "memory")


def t4_result(
    outcome: Outcome,
    memory_bytes: int,
    started_at: datetime,
    parameters: Mapping[str, Any],
    mapping: Mapping[str, Any],
    local_sizes: Mapping[str, Any],
) -> dict[str, Any]:
    """One element of ``results``: a configuration with its times in milliseconds."""
    times: dict[str, Any] = {}
    measurements = [_measured("memory", memory_bytes, "bytes")]
    if isinstance(outcome, Timed):
        compile_ms = outcome.compile_ms if math.isfinite(outcome.compile_ms) else 0.0
        times = {
            "compilation_time": compile_ms,
            "compilation": compile_ms,
            "runtimes": [trial / 1e6 for trial in outcome.trials_ns],
        }
        measurements.insert(0, _measured("time", outcome.time_ms, "ms"))
        if outcome.spans_ns:
            measurements.append(_measured("span", outcome.span_ms, "ms"))
        # A store may hold what is refused today.
        if math.isfinite(outcome.max_relative_error):
            measurements.append(_measured("max_relative_error", outcome.max_relative_error, ""))
    return {
        "timestamp": started_at.isoformat(),
        "configuration": configuration(parameters, mapping, local_sizes),
        "objectives": list(OBJECTIVES),
        "times": times,
        "invalidity": invalidity(outcome),
        "correctness": 1 if isinstance(outcome, Timed) else 0,
        "measurements": measurements,
    }


def configuration(
    parameters: Mapping[str, Any], mapping: Mapping[str, Any], local_sizes: Mapping[str, Any]
) -> dict[str, Any]:
    """All that was chosen, flat: parameters, ``map_<id>`` and ``local_<kernel>_<dimension>``."""
    flat: dict[str, Any] = dict(parameters)
    flat |= {f"map_{name}": code for name, code in mapping.items()}
    for kernel, sizes in local_sizes.items():
        flat |= {f"local_{kernel}_{place}": size for place, size in enumerate(sizes)}
    return flat


def invalidity(outcome: Outcome) -> str:
    """T4's word for an outcome."""
    match outcome:
        case Timed():
            return "correct"
        case Wrong():
            return "correctness"
        case CompileError():
            return "compile"
        case Timeout():
            return "timeout"
        case ResourceError() | Crash():
            return "runtime"
        case _:
            assert_never(outcome)


def _measured(name: str, value: float, unit: str) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit}
