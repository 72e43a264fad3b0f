"""Tuning records of what a store holds: the store is where results are, records are an export.

A study of a layer is known by its program, which is the same whatever the layer was called. Its
front becomes records, with the figures that were measured.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from api.layer_programs import programs_of
from db.records import StoredDevice, StoredMeasurement, Study
from db.store import Store
from mapper.ast_model.nest import maps_below
from mapper.constraint_rules.rule import Mode
from mapper.errors import NestmapError
from mapper.host_plan import HostPlan
from mapper.kernel_gen.generate import Choices, generate
from mapper.layer_spec import LayerSpec
from mapper.measurement import Timed
from mapper.pipeline import Subject, origin_of, subject_of_layer
from mapper.schedule import ScheduleCode
from mapper.tuning_records import TuningRecord, tflops
from mapper.variants import LAST_RESORT, VARIANTS
from nestmap.tuning.record_files import device_folder, own_records
from nestmap.tuning.record_subjects import schedule_of
from nestmap.tuning.statistics import interquartile
from nestmap.tuning.stored_schedules import stored_subject

#: Points of one study's front that become records: the fastest.
MOST_OF_A_STUDY = 16


@dataclass(frozen=True, slots=True)
class Stored:
    """A record with where in the store it comes from."""

    record: TuningRecord
    study: int
    candidate: str
    device: StoredDevice


def stored_records(
    store: Store,
    layer: LayerSpec,
    on: Callable[[StoredDevice], bool] = lambda device: True,
    also: Collection[str] = (),
) -> Iterator[Stored]:
    """The fronts of a layer's studies in the strict mode on the devices that are wanted, study by
    study, and ``also`` these candidates. What cannot be read any more is left out."""
    programs = programs_of(layer)
    variants = {program: name for name, program in programs.items()}
    sketches = store.under_schedules(programs[LAST_RESORT])
    devices = {device.id: device for device in store.devices() if on(device)}
    for study in store.studies():
        device = devices.get(study.device_id)
        variant = variants.get(study.program_hash)
        if variant is None and study.program_hash in sketches:
            variant = study.variant
        if device is None or not variant or study.mode != Mode.STRICT.value:
            continue
        yield from _of_study(store, study, layer, variant, device, also)


def records_of_store(
    store: Store, layer: LayerSpec, on: Callable[[StoredDevice], bool] = lambda device: True
) -> tuple[TuningRecord, ...]:
    """As :func:`stored_records`, the records alone."""
    return tuple(found.record for found in stored_records(store, layer, on))


def own_starts(
    store: Store, facts: Mapping[str, str], layer: LayerSpec, folder: Path | None = None
) -> tuple[TuningRecord, ...]:
    """What a search of a layer on a device starts from beside the shipped records: those of the
    user's folder, and what the store holds of the layer on such a device."""
    name = device_folder(facts)
    given = own_records(folder, name) if folder is not None else ()
    return (*given, *records_of_store(store, layer, of_folder(name)))


def of_folder(name: str) -> Callable[[StoredDevice], bool]:
    """Whether a device's records would be in the folder of this name."""
    return lambda device: folder_of(device) == name


def folder_of(device: StoredDevice) -> str:
    """The folder that a stored device's records would be in."""
    return device_folder({"device.name": device.name, **_texts(device)})


def _of_study(
    store: Store,
    study: Study,
    layer: LayerSpec,
    variant: str,
    device: StoredDevice,
    also: Collection[str],
) -> Iterator[Stored]:
    front = [point.candidate_id for point in store.front(study)[:MOST_OF_A_STUDY]]
    if not front:
        return
    subject = _subject_of(store, study, layer, variant)
    try:
        measured = {m.candidate_id: m for m in store.measurements(study)}
    except NestmapError:
        # Rows of another release.
        return
    for name in dict.fromkeys((*front, *(name for name in also if name in measured))):
        try:
            chosen = store.candidate(name).chosen
            plan = _plan_of(subject, chosen)
        except (NestmapError, KeyError, TypeError, ValueError):
            # Of another release: other rules, or another generator.
            continue
        record = _record(layer, subject, variant, chosen, measured[name], plan, device)
        if record is not None:
            yield Stored(record, study.id, name, device)


def _subject_of(store: Store, study: Study, layer: LayerSpec, variant: str) -> Subject:
    """What was tuned: of a sketch as it is stored, for sketches of another release may differ."""
    if variant in VARIANTS:
        return subject_of_layer(layer, variant)
    return replace(stored_subject(store, study), label=layer.name, layer=layer)


def _record(
    layer: LayerSpec,
    subject: Subject,
    variant: str,
    chosen: Mapping[str, Any],
    measured: StoredMeasurement,
    plan: HostPlan,
    device: StoredDevice,
) -> TuningRecord | None:
    outcome, facts = measured.outcome, _texts(device)
    if not isinstance(outcome, Timed):
        return None
    return TuningRecord(
        layer=layer,
        variant=variant,
        choices=chosen,
        time_ms=outcome.time_ms,
        spread=round(interquartile(outcome.times_ns), 4),
        trials=len(outcome.trials_ns),
        tflops=round(tflops(layer, outcome.time_ms), 4),
        extra_bytes=plan.scratch_bytes,
        prepared_bytes=plan.prepared_bytes,
        relative_error=outcome.max_relative_error,
        source_hash=measured.source_hash,
        device=facts.get("device.name", device.name),
        driver=facts.get("driver.version", ""),
        target=facts.get("device.target", ""),
        commit=f"nestmap {measured.nestmap_version}",
        date=measured.started_at.date().isoformat(),
        schedule=schedule_of(subject),
    )


def _texts(device: StoredDevice) -> dict[str, str]:
    return {name: str(text) for name, text in device.facts.items()}


def _plan_of(subject: Subject, chosen: Mapping[str, Any]) -> HostPlan:
    """The kernels of a stored candidate; its space, which takes seconds to derive, is not needed
    to print them."""
    codes = chosen["mapping"]
    maps = chain.from_iterable(maps_below(nest.roots) for nest in subject.nests)
    choices = Choices(
        {name: int(value) for name, value in chosen["parameters"].items()},
        {item.id: ScheduleCode(codes[str(item.id)]) for item in maps},
        {name: (size[0], size[1], size[2]) for name, size in chosen["local_sizes"].items()},
    )
    return generate(subject.require_program(), choices, origin_of(subject, ()))
