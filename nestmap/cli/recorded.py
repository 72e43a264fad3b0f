"""What is known of a layer's fastest mapping, for ``nestmap kernel --best``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.device_profile import device_name
from mapper.errors import InputError, Problem
from mapper.layer_spec import LayerSpec, Layout, plainest
from mapper.pipeline import Assignment, Subject, derive_space
from mapper.profiles import profile_names
from mapper.solver.space import Space
from mapper.tuning_records import (
    TuningRecord,
    choices_key,
    nearest,
    record_devices,
    shipped_records,
)
from nestmap.cli.front import DEFAULT_DATABASE, open_store
from nestmap.cli.output import note
from nestmap.cli.request import Request
from nestmap.device_limits import limits_of_device
from nestmap.tuning.record_files import own_records
from nestmap.tuning.store_records import folder_of, of_folder, stored_records
from worker.devices.names import is_null

if TYPE_CHECKING:
    from db.store import Store


@dataclass(frozen=True, slots=True)
class Known:
    """A record, and where it is from: ``own`` of the user's store or folder."""

    record: TuningRecord
    place: str
    own: bool

    def to_json(self) -> dict[str, Any]:
        """What is known of it, as ``kernel --best --json`` says it."""
        record = self.record
        names = ("variant", "time_ms", "extra_bytes", "device", "target", "date")
        return {"from": self.place, **{name: getattr(record, name) for name in names}}


@dataclass(frozen=True, slots=True)
class Places:
    """Where the user keeps results: a store (the default one where it is there) and a folder."""

    db: str | None = None
    records: Path | None = None


def best_recorded(
    x: str, layer: LayerSpec, variant: str | None, device: str, places: Places
) -> tuple[Request, Assignment, Known]:
    """The fastest known mapping of a layer, which X names, on a device, under its own schedule
    and in its own layout: of the shipped records, the user's store and folder.

    ``variant`` leaves others out. InputError where nothing is known of this device, or no mapping
    that is known is valid any more. What another device took says nothing of this one.
    """
    name = record_device(device)
    limits = limits_of_device(device)
    with opened_store(places.db) as store:
        found = _matching(_known(name, layer, store, places, variant), layer, limits.target)
        for other in () if found else _in_other_layouts(layer):
            known = _known(name, other, store, places, variant)
            if found := _matching(known, other, limits.target):
                note(f"the record's arrays are {found[0].record.layer.layout}")
                break
        if not found:
            raise _nothing_known(x, layer, name, device, _devices(layer, store, places), variant)
    # Loads the solver.
    from nestmap.tuning.record_subjects import subject_of_record
    from nestmap.tuning.valid_records import as_recorded

    spaces: dict[tuple[LayerSpec, str, str], tuple[Subject, Space]] = {}
    for one in found:
        record = one.record
        key = (record.layer, record.variant, json.dumps(record.schedule))
        if key not in spaces:
            named = replace(record, layer=replace(record.layer, name=layer.name))
            try:
                subject = subject_of_record(named, limits)
            except InputError:
                # A sketch of another release.
                continue
            spaces[key] = subject, derive_space(subject, Mode.STRICT, limits, RuleOptions())
        subject, space = spaces[key]
        assignment = as_recorded(subject, space, limits, record)
        if assignment is not None:
            _say(one)
            why = f"the fastest that is known: {one.place}"
            request = Request(subject, limits, Mode.STRICT, space, variant_reason=why)
            return request, dict(assignment), one
    raise InputError(
        Problem("--best", f"the record of {found[0].record.date} is not valid under today's rules",
                found[0].place, "", tuning_command(x, device))
    )  # fmt: skip


def _say(one: Known) -> None:
    record = one.record
    figure = (
        f"{record.time_ms:.4g} ms, {record.tflops:.3g} TFLOP/s, {record.extra_bytes} extra bytes"
    )
    compiled = f" ({record.target})" if record.target else ""
    note(f"variant {record.variant}, measured on {record.device}{compiled}: {figure}")
    note(f"from {one.place}")


@contextmanager
def opened_store(db: str | None) -> Iterator[Store | None]:
    """The store; without a name the default one, None where that is not there."""
    if db is None and not Path(DEFAULT_DATABASE).exists():
        yield None
        return
    with open_store(db or DEFAULT_DATABASE) as store:
        yield store


def _known(
    name: str, layer: LayerSpec, store: Store | None, places: Places, variant: str | None
) -> list[Known]:
    """All that is known of a device: records of any layer, and what the store has of this one."""
    found = [Known(r, f"the shipped records: {r.device}, {r.date}", False)
             for r in shipped_records(name)]  # fmt: skip
    if places.records is not None:
        found += [
            Known(r, f"{places.records}: {r.device}, {r.date}", True)
            for r in own_records(places.records, name)
        ]
    if store is not None:
        db = places.db or DEFAULT_DATABASE
        found += [
            Known(s.record, f"{db}: study {s.study}, candidate {s.candidate}", True)
            for s in stored_records(store, layer, of_folder(name))
        ]
    return [one for one in found if variant is None or one.record.variant == variant]


def _matching(known: Sequence[Known], layer: LayerSpec, target: str) -> list[Known]:
    """Those of a layer in any spelling of it, fastest first.

    What its user has measured again counts with the user's figures; times of two processors are
    not to be compared, so that there the user's count alone.
    """
    wanted = plainest(layer)
    fitting = [one for one in known if plainest(one.record.layer) == wanted]
    again = {(o.record.variant, choices_key(o.record.choices)) for o in fitting if o.own}
    others = any(one.own for one in fitting) and target != ""
    fitting = [
        one
        for one in fitting
        if one.own or not (others or (one.record.variant, choices_key(one.record.choices)) in again)
    ]
    near = {id(record) for record in nearest([one.record for one in fitting], target)}
    return sorted(
        (one for one in fitting if id(one.record) in near), key=lambda one: one.record.time_ms
    )


def _devices(layer: LayerSpec, store: Store | None, places: Places) -> list[str]:
    """The devices that there is a record of the layer for."""
    wanted = plainest(layer)
    found = [
        name
        for name in record_devices()
        if any(plainest(record.layer) == wanted for record in shipped_records(name))
    ]
    if places.records is not None and places.records.is_dir():
        found += [
            folder.name
            for folder in sorted(places.records.iterdir())
            if folder.is_dir()
            and any(plainest(r.layer) == wanted for r in own_records(places.records, folder.name))
        ]
    if store is not None:
        found += [folder_of(stored.device) for stored in stored_records(store, layer)]
    return list(dict.fromkeys(found))


def _nothing_known(
    x: str, layer: LayerSpec, name: str, device: str, devices: Sequence[str], variant: str | None
) -> InputError:
    of = f" in the variant {variant}" if variant else ""
    others = [other for other in devices if other != name]
    has = f"{', '.join(others)} has one, which is no answer here, only a start" if others else ""
    return InputError(
        Problem(
            "--best",
            f"there is no tuning record of {layer.name}{of} for {name}",
            has,
            f"records are shipped for {', '.join(record_devices()) or 'no device yet'}",
            tuning_command(x, device),
        )
    )


def tuning_command(x: str, device: str) -> str:
    """What finds a fast mapping of X."""
    return shlex.join(("nestmap", "tune", x, "--device", device))


def _in_other_layouts(layer: LayerSpec) -> Iterator[LayerSpec]:
    for layout in Layout:
        if layout is not layer.layout:
            with suppress(InputError):  # no whole blocks of channels
                yield replace(layer, layout=layout)


def record_device(device: str) -> str:
    """The folder of records that a device's name means."""
    plain = device_name(device).plain
    if plain in profile_names() or is_null(device):
        return plain
    from nestmap.tuning.record_files import device_folder
    from worker.devices.facts import device_facts
    from worker.devices.opencl import find_device

    return device_folder(device_facts(find_device(device)))
