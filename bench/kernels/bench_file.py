"""The JSON that a comparison leaves, and the table that it prints."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.kernels.gpu import Figure, Row, geometric_mean, ratio, run_ratio
from mapper.errors import InputError, Problem
from mapper.tuning_records import tflops
from nestmap.source_commit import commit

GPU_SCHEMA = "nestmap/bench-gpu/1"
_NUMBERS = (
    "TFLOP/s",
    "cuDNN",
    "ratio",
    "run",
    "run ratio",
    "error",
    "cuDNN error",
    "extra MB",
    "packed MB",
    "workspace MB",
)
GPU_COLUMNS = ("layer", *_NUMBERS, "note")
GPU_NUMBERS = _NUMBERS


def gpu_value(
    rows: Sequence[Row], facts: Mapping[str, str], versions: Mapping[str, str], settings: Any
) -> dict[str, Any]:
    """What ``--out`` holds."""
    return {
        "schema": GPU_SCHEMA,
        "commit": commit(),
        "device": dict(facts),
        "versions": dict(versions),
        "settings": settings,
        "rows": [row.to_json() for row in rows],
        **_means(rows),
    }


def _means(rows: Sequence[Row]) -> dict[str, Any]:
    best = [row.ratio for row in rows if row.ratio is not None]
    lean = [r for row in rows if (r := ratio(row.cudnn, row.lean)) is not None]
    best_runs = [r for row in rows if (r := run_ratio(row.cudnn, row.best)) is not None]
    lean_runs = [r for row in rows if (r := run_ratio(row.cudnn, row.lean)) is not None]
    return {
        "geometric_mean_ratio": geometric_mean(best),
        "geometric_mean_ratio_no_extra_memory": geometric_mean(lean),
        "geometric_mean_run_ratio": geometric_mean(best_runs),
        "geometric_mean_run_ratio_no_extra_memory": geometric_mean(lean_runs),
        "layers_compared": len(best),
    }


def gpu_rows(rows: Sequence[Row]) -> list[list[str]]:
    """Two lines a layer: the fastest kernels, and the fastest without extra memory."""
    lines: list[list[str]] = []
    for row in rows:
        lines.append(_line(row.layer.name, row, row.best))
        if row.lean is row.best:
            lines.append(["  no extra memory", *[""] * len(_NUMBERS), "the same"])
        else:
            lines.append(_line("  no extra memory", row, row.lean))
    return lines


def _line(title: str, row: Row, ours: Figure | None) -> list[str]:
    library = row.cudnn
    notes = [figure.failure for figure in (ours, library) if figure is not None and figure.failure]
    if ours is None:
        notes.append("no record")
    quotient, of_runs = ratio(library, ours), run_ratio(library, ours)
    return [
        title,
        _rate(row, ours),
        _rate(row, library),
        "" if quotient is None else f"{quotient:.2f}",
        "" if ours is None or ours.run_ms is None else f"{tflops(row.layer, ours.run_ms):.3g}",
        "" if of_runs is None else f"{of_runs:.2f}",
        _error(ours),
        _error(library),
        "" if ours is None or ours.failure else f"{ours.extra_bytes / 1e6:.2f}",
        "" if ours is None or ours.failure else f"{ours.prepared_bytes / 1e6:.2f}",
        "" if library is None or library.failure else f"{library.extra_bytes / 1e6:.2f}",
        "; ".join(notes),
    ]


def _rate(row: Row, figure: Figure | None) -> str:
    if figure is None or figure.time_ms is None:
        return ""
    return f"{tflops(row.layer, figure.time_ms):.3g}"


def _error(figure: Figure | None) -> str:
    return "" if figure is None or figure.time_ms is None else f"{figure.relative_error:.1e}"


def gpu_summary(rows: Sequence[Row]) -> str:
    """One sentence on all layers."""
    means = _means(rows)
    mean, lean = means["geometric_mean_ratio"], means["geometric_mean_ratio_no_extra_memory"]
    if mean is None:
        return f"{len(rows)} layers, none compared with cuDNN"
    slower = [row.layer.name for row in rows if row.ratio is not None and row.ratio < 1]
    text = f"{means['layers_compared']} layers: {mean:.2f} times cuDNN in the geometric mean"
    if lean is not None:
        text += f", {lean:.2f} without extra memory"
    runs = means["geometric_mean_run_ratio"]
    if runs is not None:
        text += f"; {runs:.2f} back to back"
    return text + (f"; slower on {', '.join(slower)}" if slower else "; slower on none")


def write_value(path: Path, value: Mapping[str, Any]) -> None:
    """Replace the file at once, so that an interruption leaves the old one. InputError."""
    fresh = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
        os.replace(fresh, path)
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be written: {error.strerror}")) from error
