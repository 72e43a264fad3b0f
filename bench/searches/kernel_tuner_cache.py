"""Kernel Tuner's cache files (one JSON object a tuned space) as recordings.

The published ones of the benchmark hub (AutoTuningAssociation/benchmark_hub, MIT) hold the mean
time in ms, all trials, and what compiling and benchmarking took, for every valid configuration.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench.searches.recording import MAX_BYTES, Recording
from mapper.errors import InputError, Problem

HUB = "AutoTuningAssociation/benchmark_hub@8eeb99e7, DOI 10.5281/zenodo.15364124"


def recording_of_cache(
    path: Path, name: str, document: Mapping[str, Any], *, device: str = ""
) -> Recording:
    """Read a cache file, gzipped or plain; ``document`` is its space (``nestmap/space/1``).

    Rows are sorted by configuration. ``device`` stands where the file names none. InputError for
    a file of another kind.
    """
    try:
        value = json.loads(_text(path))
        parameters: dict[str, list[int]] = value["tune_params"]
        names = list(parameters)
        entries = sorted(
            value["cache"].values(), key=lambda entry: [int(entry[name]) for name in names]
        )
        times = [
            np.nan if isinstance(entry["time"], str) else float(entry["time"]) for entry in entries
        ]
        variables = tuple((key, tuple(sorted(map(int, v)))) for key, v in parameters.items())
        positions = [
            [values.index(int(entry[key])) for key, values in variables] for entry in entries
        ]
        return Recording(
            name,
            value["device_name"] or device,
            HUB,
            "MIT",
            document,
            variables,
            np.array(positions, np.int64),
            np.array(times),
            {
                row: str(entry["time"])
                for row, entry in enumerate(entries)
                if isinstance(entry["time"], str)
            },
            np.array([_spread(entry.get("times", ())) for entry in entries]),
            np.array(
                [
                    sum(
                        float(entry.get(part, 0.0))
                        for part in ("compile_time", "verification_time", "benchmark_time")
                    )
                    for entry in entries
                ]
            ),
            np.zeros(len(entries), np.int64),
            True,
        )
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise InputError(
            Problem(str(path), "is no cache file of Kernel Tuner", str(error)[:200])
        ) from error


def _text(path: Path) -> bytes:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        found = file.read(MAX_BYTES + 1)
    if len(found) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES} bytes")
    return bytes(found)


def _spread(trials: Any) -> float:
    if len(trials) < 4:
        return 0.0
    low, middle, high = np.quantile(np.array(trials, np.float64), (0.25, 0.5, 0.75))
    return float((high - low) / 2 / middle)
