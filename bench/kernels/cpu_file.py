"""The JSON that a comparison on a CPU leaves, and the table that it prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.kernels.cpu import CpuRow
from bench.kernels.gpu import geometric_mean
from mapper.tuning_records import tflops
from nestmap.source_commit import commit

CPU_SCHEMA = "nestmap/bench-cpu/1"


def cpu_value(
    rows: Sequence[CpuRow],
    facts: Mapping[str, str],
    versions: Mapping[str, Mapping[str, str]],
    threads: int,
    settings: Any,
) -> dict[str, Any]:
    """What ``--out`` holds."""
    return {
        "schema": CPU_SCHEMA,
        "commit": commit(),
        "device": dict(facts),
        "versions": {name: dict(found) for name, found in versions.items()},
        "threads": threads,
        "settings": settings,
        "rows": [row.to_json() for row in rows],
        "geometric_mean_ratios": _means(rows),
    }


def _means(rows: Sequence[CpuRow]) -> dict[str, float | None]:
    ratios: dict[str, list[float]] = {}
    for row in rows:
        for figure in row.figures[1:]:
            ratio = row.ratio(figure)
            if ratio is not None:
                ratios.setdefault(figure.contestant, []).append(ratio)
    return {name: geometric_mean(values) for name, values in ratios.items()}


def cpu_columns(others: Sequence[str]) -> tuple[str, ...]:
    """The table's columns: GFLOP/s of ours and of each, each one's time over ours, and our share
    of what the cores reach without memory."""
    ratios = [f"{name} ratio" for name in others]
    return ("layer", "GFLOP/s", *others, *ratios, "of peak", "error", "extra MB", "rounds")


def cpu_rows(rows: Sequence[CpuRow]) -> list[list[str]]:
    """A line a layer."""
    lines: list[list[str]] = []
    for row in rows:
        ours, others = row.figures[0], row.figures[1:]
        rates: list[str] = []
        for figure in row.figures:
            time_s = row.time_s(figure)
            rates.append("" if time_s is None else f"{tflops(row.layer, time_s * 1e3) * 1e3:.3g}")
        ratios = [row.ratio(figure) for figure in others]
        share = row.share_of_peak()
        lines.append(
            [
                row.layer.name,
                *rates,
                *("" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
                "" if share is None else f"{share:.2f}",
                "failed" if ours.failure else f"{ours.relative_error:.1e}",
                "" if ours.failure else f"{ours.extra_bytes / 1e6:.2f}",
                f"{len(row.accepted)} of {row.tried}",
            ]
        )
    return lines


def cpu_summary(rows: Sequence[CpuRow]) -> str:
    """One sentence on all layers."""
    means = [f"{mean:.2f} times {name}" for name, mean in _means(rows).items() if mean is not None]
    text = f"{len(rows)} layers"
    if means:
        text += f"; in the geometric mean {', '.join(means)}"
    bare = [row.layer.name for row in rows if not row.accepted]
    if bare:
        text += f"; no round in which all had their cores on {', '.join(bare)}"
    return text
