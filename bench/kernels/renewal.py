"""Layers tuned anew under their sketches, and what is found held against the earlier records.

A campaign of hours that may be stopped anywhere: each layer is a line of its journal, and what is
there is not done again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.kernels.earlier import EarlierKernel, fastest_of
from bench.kernels.earlier_sizes import is_of_the_template, starts_of
from bench.kernels.gpu import (
    Figure,
    Kernels,
    Rounds,
    entered,
    geometric_mean,
    ratio,
    run_ratio,
)
from bench.kernels.judging import Judge
from bench.kernels.tuning_stage import Tuning, tune_layers
from mapper.device_profile import DeviceProfile
from mapper.errors import DeviceError, InputError, NestmapError, Problem
from mapper.host_plan import HostPlan
from mapper.layer_spec import LayerSpec
from mapper.pipeline import subject_of_layer
from mapper.profiles import load_profile
from mapper.tuning_records import (
    TuningRecord,
    best_record,
    nearest,
    records_from_json,
    records_of,
    records_to_json,
)
from mapper.variants import VARIANTS
from nestmap.tuning.policy import INPUT_SEED
from nestmap.tuning.record_files import device_folder, own_records
from nestmap.tuning.reference import make_workload
from nestmap.tuning.valid_records import plan_of
from worker.devices.facts import device_facts
from worker.devices.interface import MeasuringDevice
from worker.devices.opencl import profile_of
from worker.measuring.back_to_back import BackToBack
from worker.measuring.loaded_plan import Session

SCHEMA = "nestmap/renewal/1"
#: What a line says of the device.
_FACTS = ("device.name", "driver.version", "device.target")
#: Earlier records of a layer whose sizes a search begins with.
_RECORDS = 2


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a campaign goes by: how layers are tuned, where its records and its journal are, and the
    kernels that are held against. ``how`` are the turns."""

    tuning: Tuning
    records: Path
    journal: Path
    earlier: Sequence[EarlierKernel]
    how: Rounds


def renew(
    layers: Sequence[LayerSpec],
    device: MeasuringDevice,
    session: Session,
    plan: Renewal,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Tune each layer that the journal lacks, and write its line; all lines that there are then.

    DeviceError ends the campaign; what is known of the layers before is kept.
    """
    facts, profile = device_facts(session.device), profile_of(session.device)
    folder = device_folder(facts)
    target = facts.get("device.target", "")
    lines = read_journal(plan.journal)
    done = {json.dumps(line["layer"], sort_keys=True) for line in lines}
    for layer in layers:
        if json.dumps(layer.to_json(), sort_keys=True) in done:
            continue
        try:
            tune_layers([layer], device, plan.tuning, plan.records, say)
        except DeviceError:
            raise
        except NestmapError as error:
            say(f"{layer.name}: {error}")
            continue
        before = fastest_of((k for k in plan.earlier if k.folder == folder), layer, target)
        found = _of_sketches(own_records(plan.records, folder), layer, target)
        line = compared(layer, before, found, session, profile, plan.how)
        line["device"] = {name: str(facts.get(name, "")) for name in _FACTS}
        lines.append(line)
        _append(plan.journal, line)
        say(f"{layer.name}: {_said(line)}")
    return lines


def _of_sketches(
    records: Sequence[TuningRecord], layer: LayerSpec, target: str
) -> TuningRecord | None:
    sketches = [record for record in records if record.variant not in VARIANTS]
    return best_record(sketches, layer, target=target)


def compared(
    layer: LayerSpec,
    before: EarlierKernel | None,
    found: TuningRecord | None,
    session: Session,
    profile: DeviceProfile,
    how: Rounds,
) -> dict[str, Any]:
    """An earlier kernel of a layer and that of a record in turns, each held against float64."""
    workload = make_workload(subject_of_layer(layer, "high-level"), INPUT_SEED, {})
    judge = Judge(workload.expected, workload.tolerance)
    figures: dict[str, Figure] = {}
    right: list[Kernels] = []

    contestants: list[tuple[str, TuningRecord, Callable[[], HostPlan]]] = []
    if before is not None:
        contestants.append(("earlier", before.record, lambda: before.plan))
    if found is not None:
        contestants.append(("found", found, partial(plan_of, found, profile)))
    for name, record, made in contestants:
        figures[name] = entered(name, record, made, session, workload, judge, right)
    with ExitStack() as stack:
        for kernels in right:
            stack.callback(kernels.end, judge)
        back_to_back = BackToBack(session)
        for _ in range(how.rounds):
            for kernels in right:
                kernels.time(how, back_to_back)
    both = figures.get("earlier"), figures.get("found")
    return {
        "schema": SCHEMA,
        "layer": layer.to_json(),
        **{name: figure.to_json(layer) for name, figure in figures.items()},
        # Below 1: the earlier kernel is faster.
        "ratio": ratio(*both),
        "run_ratio": run_ratio(*both),
    }


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The lines of a journal; none where there is no file. InputError for another file."""
    if not path.exists():
        return []
    found = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    if any(line.get("schema") != SCHEMA for line in found):
        raise InputError(Problem(str(path), "is no journal of a renewal", "", SCHEMA))
    return found


def write_starts(
    path: Path,
    layers: Sequence[LayerSpec],
    earlier: Sequence[EarlierKernel],
    device: str,
    say: Callable[[str], None],
) -> None:
    """The starts of each layer's search, from its earlier records for the device of a profile."""
    profile = load_profile(device)
    found: list[TuningRecord] = []
    path.parent.mkdir(parents=True, exist_ok=True)
    for layer in layers:
        mine = [k.record for k in earlier if k.folder == device]
        near = sorted(nearest(records_of(mine, layer), profile.target), key=lambda r: r.time_ms)
        count = len(found)
        for record in near[:_RECORDS]:
            if is_of_the_template(record):
                found += starts_of(layer, record, profile)
            else:
                found.append(replace(record, layer=layer))
        say(f"{layer.name}: {len(found) - count} to begin with")
        path.write_text(json.dumps(records_to_json(found)) + "\n", encoding="utf-8")


def read_starts(path: Path) -> tuple[TuningRecord, ...]:
    """What :func:`write_starts` wrote. InputError."""
    return records_from_json(json.loads(path.read_text(encoding="utf-8")))


def _append(path: Path, line: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, sort_keys=True) + "\n")


def summary(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The geometric mean of earlier over found, and the layers that are more than 8 % behind."""
    known = {line["layer"]["name"]: line["ratio"] for line in lines if line["ratio"]}
    return {
        "layers": len(lines),
        "compared": len(known),
        "geometric_mean_ratio": geometric_mean(list(known.values())),
        "behind": {name: value for name, value in known.items() if value < 1 / 1.08},
    }


def _said(line: Mapping[str, Any]) -> str:
    times = (
        f"{name} {line[name]['time_ms']:.4g} ms ({line[name]['details']['variant']})"
        for name in ("earlier", "found")
        if line.get(name, {}).get("time_ms")
    )
    quotient = line["ratio"]
    return ", ".join((*times, *([] if quotient is None else [f"{quotient:.3f}"])))
