"""Record files: the shipped ones, and those of a folder where a search leaves what it finds."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from mapper.ast_model.bounded_json import loads_bounded
from mapper.errors import InputError, Problem
from mapper.layer_sets import layer_set_names
from mapper.layer_spec import LayerSpec
from mapper.plain_files import read_plain_file
from mapper.profiles import profile_names
from mapper.schedules.schedule_text import schedule_from_json
from mapper.tuning_records import (
    TuningRecord,
    choices_key,
    front_of,
    records_from_json,
    records_to_json,
    same_layer,
    shipped_records,
)

_MAX_BYTES = 64 * 2**20
_MAX_DEPTH = 40
#: The file of layers that belong to no set.
_OTHERS = "layers"

#: What is timed again: a layer, a target, a variant and a candidate's key.
_Key = tuple[LayerSpec, str, str, str]


def device_folder(facts: Mapping[str, str]) -> str:
    """The folder's name for a device: a shipped profile's if it is such a device, else the
    device's own name in lower case."""
    if "pocl" in facts.get("platform.version", "").lower():
        return "pocl"
    name = facts.get("device.name", "")
    words = re.findall(r"[a-z0-9]+", name.lower())
    for profile in profile_names():
        if set(re.findall(r"[a-z0-9]+", profile)) <= set(words):
            return profile
    return "-".join(words) or "unknown"


def file_of(layer_name: str) -> str:
    """The file that a layer's records are in, without its suffix: the name of its set."""
    first = layer_name.partition("/")[0]
    return first if first in layer_set_names() else _OTHERS


def read_records(folder: Path, device: str) -> tuple[TuningRecord, ...]:
    """All records of a device: the shipped ones and those of ``folder``. InputError.

    What was timed again has the figures of ``folder``.
    """
    found: dict[_Key, TuningRecord] = {}
    for record in shipped_records(device):
        found[_key(record)] = record
    for path in sorted((folder / device).glob("*.json")):
        found |= {_key(record): record for record in _read(path)}
    return tuple(found.values())


def own_records(folder: Path, device: str) -> tuple[TuningRecord, ...]:
    """The records of a device in a folder of the user's; InputError where there is no folder."""
    if not folder.is_dir():
        raise InputError(Problem(str(folder), "there is no such folder of records"))
    found = [_read(path) for path in sorted((folder / device).glob("*.json"))]
    return tuple(record for records in found for record in records)


def _key(record: TuningRecord) -> _Key:
    return same_layer(record.layer), record.target, record.variant, choices_key(record.choices)


def write_records(folder: Path, device: str, fresh: Sequence[TuningRecord]) -> list[Path]:
    """Add records to the files of their layers' sets, which keep the front; the files' paths."""
    by_file: dict[str, list[TuningRecord]] = {}
    for record in fresh:
        by_file.setdefault(file_of(record.layer.name), []).append(record)
    written: list[Path] = []
    for name, records in by_file.items():
        path = folder / device / f"{name}.json"
        before = _read(path) if path.exists() else ()
        _write(path, _kept(device, [*before, *records]))
        written.append(path)
    return written


def _kept(device: str, records: Sequence[TuningRecord]) -> tuple[TuningRecord, ...]:
    """The front; and what is shipped and was timed again, whose older figures would count else."""
    shipped = {_key(record) for record in shipped_records(device)}
    # Of one mapping the last counts: the generator may have made another source of it.
    latest = {_key(record): record for record in records}
    front = front_of(list(latest.values()))
    for record in front:
        latest.pop(_key(record), None)
    return (*front, *(record for key, record in latest.items() if key in shipped))


def _read(path: Path) -> tuple[TuningRecord, ...]:
    try:
        text = read_plain_file(path, _MAX_BYTES).decode()
    except (OSError, ValueError) as error:
        raise InputError(Problem(str(path), "cannot be read", str(error))) from error
    try:
        read = loads_bounded(text, max_bytes=_MAX_BYTES, max_depth=_MAX_DEPTH)
        records = records_from_json(read)
        for index, record in enumerate(records):
            if record.schedule is not None:
                _check_schedule(record.schedule, f"/records/{index}/schedule")
        return records
    except InputError as error:
        raise InputError(
            Problem(f"{path}{p.path}", p.message, p.found, p.allowed, p.remedy)
            for p in error.problems
        ) from error


def _check_schedule(value: object, path: str) -> None:
    try:
        schedule_from_json(value)
    except InputError as error:
        raise InputError(
            Problem(f"{path}/{p.path.lstrip('/')}", p.message, p.found, p.allowed, p.remedy)
            for p in error.problems
        ) from None


def _write(path: Path, records: Iterable[TuningRecord]) -> None:
    value = records_to_json(records)
    # A record a line: differences stay readable.
    lines = ",\n".join(json.dumps(record, sort_keys=True) for record in value["records"])
    text = f'{{"schema": "{value["schema"]}", "records": [\n{lines}\n]}}\n'
    fresh = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, path)
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be written: {error.strerror}")) from error
