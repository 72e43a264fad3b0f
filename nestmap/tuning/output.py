"""What a tuning run writes: the best kernel as files, and the whole result as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mapper.errors import InputError, Problem
from mapper.layer_spec import LayerSpec
from mapper.schedules.schedule_text import schedule_to_json
from nestmap.tuning.baselines import Contestant, gflops
from nestmap.tuning.run import FrontEntry, TuningResult


def write_best(entry: FrontEntry, folder: Path) -> tuple[Path, Path]:
    """Write ``<label>.cl`` and ``<label>.plan.json``; InputError where that is impossible."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", entry.subject.label).strip("-.") or "kernel"
    source, plan = folder / f"{name}.cl", folder / f"{name}.plan.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        source.write_text(entry.plan.source, encoding="utf-8")
        plan.write_text(json.dumps(entry.plan.to_json(), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(Problem(str(folder), f"cannot be written: {error.strerror}")) from error
    return source, plan


def result_json(
    result: TuningResult,
    *,
    label: str,
    layer: LayerSpec | None,
    seed: int,
    contestants: Sequence[Contestant] = (),
    files: Sequence[Path] = (),
) -> dict[str, Any]:
    """``nestmap/tuning/1``: one object with the front and the baselines."""
    return {
        "schema": "nestmap/tuning/1",
        "subject": label,
        "layer": layer.to_json() if layer is not None else None,
        "seed": seed,
        "ended_by": result.reason,
        "device": dict(result.device_facts),
        "tried": result.state.tried,
        "outcomes": dict(result.state.outcomes),
        "refused": list(result.refused),
        "elapsed_s": result.state.elapsed_s,
        "front": [_front_json(entry, layer) for entry in result.front],
        "final": [
            {
                "candidate": final.entry.candidate,
                "time_ms": final.time_ms,
                "low_ms": final.interval.low / 1e6,
                "high_ms": final.interval.high / 1e6,
                "confidence": final.interval.confidence,
                "trials": final.trials,
                "drifted": final.drifted,
            }
            for final in result.finals
        ],
        "baselines": [contestant.to_json() for contestant in contestants],
        "files": [str(path) for path in files],
    }


def _front_json(entry: FrontEntry, layer: LayerSpec | None) -> dict[str, Any]:
    return {
        "time_ms": entry.time_ms,
        "gflops": gflops(layer, entry.time_ms) if layer is not None else None,
        "memory_bytes": entry.memory_bytes,
        "extra_bytes": entry.extra_bytes,
        "candidate": entry.candidate,
        "variant": entry.subject.variant,
        **_schedule_json(entry),
        **entry.record.chosen,
    }


def _schedule_json(entry: FrontEntry) -> dict[str, Any]:
    """What rewrote the program, with which the candidate can be made again."""
    scheduled = entry.subject.scheduled
    return {} if scheduled is None else {"schedule": schedule_to_json(scheduled.schedule)}
