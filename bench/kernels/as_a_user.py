"""Layers tuned by the command that a user types, and what comes of it beside cuDNN.

Nothing of the product is called but the command line: default options, a layer file, the seconds.
What it found is then read from what it printed and timed in turns with cuDNN in both layouts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from bench.kernels.cudnn import CudnnLayer
from bench.kernels.gpu import Rounds, Row, compare_layer
from bench.kernels.operands import library_operands
from mapper.device_profile import DeviceProfile
from mapper.errors import NestmapError
from mapper.layer_spec import LayerSpec, Layout
from mapper.tuning_records import TuningRecord
from nestmap.tuning.reference import make_workload
from worker.measuring.loaded_plan import Session

#: A command that outlives its seconds by more is a fault, not a slow one.
_PATIENCE_S = 120.0


@dataclass(slots=True)
class Tuned:
    """What one command did: wall seconds, candidates, and its fastest as records."""

    layer: LayerSpec
    wall_s: float = 0.0
    tried: int = 0
    outcomes: dict[str, int] = field(default_factory=dict[str, int])
    records: list[TuningRecord] = field(default_factory=list[TuningRecord])
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command printed as JSON, None where it failed, and its wall seconds."""

    wall_s: float
    value: dict[str, Any] | None
    failure: str = ""


def tune_file(path: Path, seconds: float, device: str, options: Sequence[str] = ()) -> Ran:
    """Run ``nestmap tune FILE --seconds N --device D --json`` in a fresh store beside the file."""
    command = [
        sys.executable, "-m", "nestmap", "tune", str(path), "--seconds", str(seconds),
        "--device", device, "--db", str(path.with_suffix(".sqlite3")), "--json", *options,
    ]  # fmt: skip
    began = time.monotonic()
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds + _PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Ran(0.0, None, f"still ran {_PATIENCE_S:.0f} s after its end")
    wall_s = time.monotonic() - began
    try:
        return Ran(wall_s, json.loads(ended.stdout))
    except ValueError:
        return Ran(wall_s, None, (ended.stderr or ended.stdout)[-500:])


def tuned_by_command(
    layer: LayerSpec, seconds: float, device: str, folder: Path, options: Sequence[str] = ()
) -> Tuned:
    """:func:`tune_file` of a layer, in a folder."""
    path = folder / f"{layer.name.replace('/', '-')}.json"
    path.write_text(json.dumps(layer.to_json()), encoding="utf-8")
    ran = tune_file(path, seconds, device, options)
    found = Tuned(layer, ran.wall_s, failure=ran.failure)
    if (value := ran.value) is None:
        return found
    found.tried, found.outcomes = value["tried"], value["outcomes"]
    for entry in fastest_first(value):
        found.records.append(_record(layer, entry, value["device"]))
    return found


def fastest_first(value: dict[str, Any]) -> list[dict[str, Any]]:
    """The front of a command's JSON, what its last measurements found fastest before the rest."""
    entries = {entry["candidate"]: entry for entry in value["front"]}
    finals = [final["candidate"] for final in value["final"]]
    return [*(entries[c] for c in finals[:1] if c in entries), *value["front"]]


def _record(layer: LayerSpec, entry: dict[str, Any], device: dict[str, str]) -> TuningRecord:
    choices = {k: entry[k] for k in ("mapping", "parameters", "local_sizes") if entry.get(k)}
    return TuningRecord(
        layer=layer,
        variant=entry["variant"],
        choices=choices,
        time_ms=entry["time_ms"],
        spread=0.0,
        trials=1,
        tflops=0.0,
        extra_bytes=entry["extra_bytes"],
        prepared_bytes=0,
        relative_error=0.0,
        source_hash="",
        device=device.get("device.name", ""),
        driver=device.get("driver.version", ""),
        target=device.get("device.target", ""),
        commit="",
        date="",
        schedule=entry.get("schedule"),
    )


def compared(
    tuned: Tuned,
    session: Session,
    profile: DeviceProfile,
    torch: Any | None,
    how: Rounds,
    note: Callable[[str], None],
) -> dict[str, Any]:
    """The fastest of a command beside the better of cuDNN's two layouts."""
    row: Row = compare_layer(tuned.layer, tuned.records, session, profile, torch, how, note=note)
    other_ms = None if torch is None else _in_the_other_layout(tuned.layer, torch, how)
    value = row.to_json()
    own_ms = row.cudnn.time_ms if row.cudnn is not None else None
    times = [ms for ms in (own_ms, other_ms) if ms is not None]
    best = row.best
    ratio = run_ratio = None
    if times and best is not None and best.time_ms is not None:
        ratio = min(times) / best.time_ms
        run_ratio = min(times) / best.run_ms if best.run_ms else None
    return {
        **value,
        "cudnn_other_layout_ms": other_ms,
        "ratio_to_better_layout": ratio,
        "run_ratio_to_better_layout": run_ratio,
        "wall_s": tuned.wall_s,
        "tried": tuned.tried,
        "outcomes": tuned.outcomes,
        "failure": tuned.failure,
    }


def _in_the_other_layout(layer: LayerSpec, torch: Any, how: Rounds) -> float | None:
    other = replace(layer, layout=Layout.NHWC if layer.layout is Layout.NCHW else Layout.NCHW)
    try:
        from mapper.pipeline import subject_of_layer

        workload = make_workload(subject_of_layer(other, "high-level"), 0, {})
        library = CudnnLayer(torch, other, library_operands(other, workload))
    except NestmapError:
        return None
    times = [
        ms for _ in range(how.rounds) for ms in library.graph.times_ms(how.repetitions, how.warmup)
    ]
    return median(times)
