"""A recorded space: configurations with what measuring each of them gave.

A recording replaces a device: a search that asks for a configuration gets the recorded outcome.
It is one gzipped JSON object (schema :data:`SCHEMA`): variables with their values, for each
variable a column of positions, and columns of times, spreads, costs and bytes. This module
needs NumPy only, so that other tuners' environments can read recordings.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.errors import InputError, Problem

SCHEMA = "nestmap/recording/1"
MAX_BYTES = 64 * 2**20
MAX_ROWS = 1_000_000
MAX_VARIABLES = 1000
#: Significant digits that are kept: the recorded spreads are far larger.
_DIGITS = 7


@dataclass(frozen=True)
class Recording:
    """Measured configurations of one space on one device.

    ``variables`` are names with values; row i of ``positions`` (rows x variables) says which
    value each variable has. ``time_ms`` is NaN where measuring failed (``failures`` says how, by
    row); ``spread`` is half the interquartile range of the trials over their median;
    ``cost_ms`` is what the evaluation took, compiling included; ``memory_bytes`` is what the
    configuration allocates (0 where it is not known). ``document`` is the space as its author
    states it, as a JSON value with a schema; ``constraints`` are its expressions, empty where
    only the recorded rows are known to be valid; ``complete`` says whether these are all.
    """

    name: str
    device: str
    source: str
    licence: str
    document: Mapping[str, Any]
    variables: tuple[tuple[str, tuple[int, ...]], ...]
    positions: NDArray[np.int64]
    time_ms: NDArray[np.float64]
    failures: Mapping[int, str]
    spread: NDArray[np.float64]
    cost_ms: NDArray[np.float64]
    memory_bytes: NDArray[np.int64]
    complete: bool

    @property
    def rows(self) -> int:
        """How many configurations."""
        return len(self.time_ms)

    @cached_property
    def values(self) -> NDArray[np.int64]:
        """Rows x variables: the values themselves."""
        columns = [
            np.array(values, np.int64)[self.positions[:, place]]
            for place, (_, values) in enumerate(self.variables)
        ]
        return np.stack(columns, axis=1)

    @cached_property
    def row_of(self) -> dict[tuple[int, ...], int]:
        """The row of a configuration, given as values in the order of the variables."""
        return {tuple(row): number for number, row in enumerate(self.values.tolist())}

    @property
    def best_ms(self) -> float:
        """The least time."""
        return float(np.nanmin(self.time_ms))

    @property
    def constraints(self) -> tuple[str, ...]:
        """The expressions of a tuning space; none for a space of mappings."""
        stated: Sequence[Any] = self.document.get("constraints", ())
        return tuple(item["expression"] if isinstance(item, dict) else str(item) for item in stated)


def _rounded(column: NDArray[np.float64]) -> list[float | None]:
    return [None if np.isnan(x) else float(f"{x:.{_DIGITS}g}") for x in column.tolist()]


def write_recording(path: Path, recording: Recording) -> None:
    """Replace the file at once; equal recordings give equal bytes."""
    value = {
        "schema": SCHEMA,
        "name": recording.name,
        "device": recording.device,
        "source": recording.source,
        "licence": recording.licence,
        "document": recording.document,
        "complete": recording.complete,
        "variables": [[name, list(values)] for name, values in recording.variables],
        "positions": recording.positions.T.tolist(),
        "time_ms": _rounded(recording.time_ms),
        "failures": {str(row): kind for row, kind in sorted(recording.failures.items())},
        "spread": [float(f"{x:.2g}") for x in np.nan_to_num(recording.spread).tolist()],
        "cost_ms": [round(x) for x in recording.cost_ms.tolist()],
        "memory_bytes": recording.memory_bytes.tolist() if recording.memory_bytes.any() else [],
    }
    text = json.dumps(value, separators=(",", ":"))
    fresh = path.with_name(path.name + ".new")
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    os.replace(fresh, path)


def read_recording(path: Path) -> Recording:
    """Read what :func:`write_recording` wrote; InputError says what is wrong with a file."""
    try:
        value = json.loads(_unpacked(path))
        if not isinstance(value, dict) or value.get("schema") != SCHEMA:
            raise ValueError("another schema")
        return _recording(value)
    except (
        OSError,
        EOFError,
        zlib.error,
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
    ) as error:
        raise InputError(
            Problem(str(path), "holds no recording", str(error)[:200], SCHEMA)
        ) from error


def _unpacked(path: Path) -> bytes:
    with gzip.open(path) as file:
        found = file.read(MAX_BYTES + 1)
    if len(found) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES} bytes")
    return found


def _recording(value: Mapping[str, Any]) -> Recording:
    times = np.array([np.nan if x is None else float(x) for x in value["time_ms"]])
    rows = len(times)
    variables = tuple(
        (str(name), tuple(int(v) for v in values)) for name, values in value["variables"]
    )
    if not 0 < rows <= MAX_ROWS or not 0 < len(variables) <= MAX_VARIABLES:
        raise ValueError(f"{rows} rows of {len(variables)} variables")
    positions = np.array(value["positions"], np.int64).T
    if positions.shape != (rows, len(variables)):
        raise ValueError(f"positions are {positions.shape}, not {(rows, len(variables))}")
    sizes = np.array([len(values) for _, values in variables])
    if (positions < 0).any() or (positions >= sizes).any():
        raise ValueError("a position is outside its variable's values")
    failures = {int(row): str(kind) for row, kind in value["failures"].items()}
    if set(failures) != set(np.flatnonzero(np.isnan(times)).tolist()):
        raise ValueError("failures are not the rows without a time")
    if not len(failures) < rows or not (times[~np.isnan(times)] > 0).all():
        raise ValueError("there is no time, or one that is not positive")
    columns = {
        "spread": np.array(value["spread"], np.float64),
        "cost_ms": np.array(value["cost_ms"], np.float64),
        "memory_bytes": np.array(value["memory_bytes"] or [0] * rows, np.int64),
    }
    for name, column in columns.items():
        if column.shape != (rows,) or (column < 0).any() or not np.isfinite(column).all():
            raise ValueError(f"{name} is not {rows} numbers")
    return Recording(
        str(value["name"]),
        str(value["device"]),
        str(value["source"]),
        str(value["licence"]),
        dict(value["document"]),
        variables,
        positions,
        times,
        failures,
        columns["spread"],
        columns["cost_ms"],
        columns["memory_bytes"],
        bool(value["complete"]),
    )
