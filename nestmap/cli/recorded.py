"""What tuning records know of a layer, for ``nestmap kernel --best``."""

from __future__ import annotations

from dataclasses import replace

from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.device_profile import device_name
from mapper.errors import InputError, Problem
from mapper.layer_sets import is_layer_name, layer_of_name
from mapper.layer_spec import LayerSpec, Layout
from mapper.pipeline import Assignment, derive_space, subject_of_layer
from mapper.profiles import profile_names
from mapper.tuning_records import TuningRecord, best_record, record_devices, shipped_records
from nestmap.cli.output import note
from nestmap.cli.request import Request
from nestmap.device_limits import limits_of_device
from nestmap.subjects import load_subject

#: Does every layer, so that a file with any can be read.
_ANY_LAYER = "high-level"


def best_recorded(x: str, variant: str | None, device: str) -> tuple[Request, Assignment]:
    """The fastest recorded mapping of a layer on a device, in its own variant and layout.

    ``variant`` leaves others out. InputError where there is no record, or where its mapping is
    not valid any more.
    """
    layer = _layer(x)
    name = _record_device(device)
    records = [r for r in shipped_records(name) if variant is None or r.variant == variant]
    limits = limits_of_device(device)
    record = best_record(records, layer, target=limits.target) or _in_another_layout(
        records, layer, limits.target
    )
    if record is None:
        raise InputError(
            Problem(
                "--best",
                f"there is no tuning record of {layer.name} for {name}",
                "",
                f"records are for {', '.join(record_devices()) or 'no device yet'}",
                "nestmap bench gpu --tune, or nestmap tune",
            )
        )
    if record.layer.layout is not layer.layout:
        note(f"the record's arrays are {record.layer.layout}")
    # Loads the solver.
    from nestmap.tuning.valid_records import as_recorded

    subject = subject_of_layer(replace(record.layer, name=layer.name), record.variant)
    space = derive_space(subject, Mode.STRICT, limits, RuleOptions())
    found = as_recorded(subject, space, limits, record)
    if found is None:
        raise InputError(
            Problem("--best", f"the record of {record.date} is not valid under today's rules")
        )
    figure = (
        f"{record.time_ms:.4g} ms, {record.tflops:.3g} TFLOP/s, {record.extra_bytes} extra bytes"
    )
    compiled = f" ({record.target})" if record.target else ""
    note(f"variant {record.variant}, measured on {record.device}{compiled}: {figure}")
    return Request(subject, limits, Mode.STRICT, space), dict(found)


def _layer(x: str) -> LayerSpec:
    if is_layer_name(x):
        return layer_of_name(x)
    layer = load_subject(x, _ANY_LAYER).layer
    if layer is None:
        raise InputError(Problem("--best", "there are tuning records of layers only", x))
    return layer


def _in_another_layout(
    records: list[TuningRecord], layer: LayerSpec, target: str
) -> TuningRecord | None:
    others = (replace(layer, layout=layout) for layout in Layout if layout is not layer.layout)
    found = (best_record(records, other, target=target) for other in others)
    return next((record for record in found if record is not None), None)


def _record_device(device: str) -> str:
    """The folder of records that a device's name means."""
    plain = device_name(device).plain
    if plain in profile_names():
        return plain
    from nestmap.tuning.record_files import device_folder
    from worker.devices.facts import device_facts
    from worker.devices.opencl import find_device

    return device_folder(device_facts(find_device(device)))
