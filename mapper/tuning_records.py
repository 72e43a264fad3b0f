"""Tuning records: the best mappings found for a layer on a device, kept with the source.

A record holds everything to make a kernel again (layer, variant, choices) and what was
measured of it. Files are ``records/<device>/<layer set>.json`` beside this module; of each
layer they keep the front of time against extra memory, so that there is a fast one and one
that needs no memory beside input, weights and output.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from math import isfinite
from typing import Any, cast

from mapper.cpu_targets import vector_bits
from mapper.errors import InputError, Problem
from mapper.layer_spec import LayerSpec

SCHEMA = "nestmap/record/3"
#: Read as well: without a sketch's schedule, and before without the target that the device's
#: compiler had.
_WITHOUT_SCHEDULE = "nestmap/record/2"
_WITHOUT_TARGET = "nestmap/record/1"
_READABLE = (SCHEMA, _WITHOUT_SCHEDULE, _WITHOUT_TARGET)
_SUFFIX = ".json"
#: A file of records that is longer is not one; a set has at most some hundred layers.
MAX_RECORDS = 10_000

_TEXTS = ("variant", "source_hash", "device", "driver", "target", "commit", "date")
_FIGURES = ("time_ms", "spread", "tflops", "relative_error")
_COUNTS = ("trials", "extra_bytes", "prepared_bytes")
_CHOICES = ("mapping", "parameters", "local_sizes")


@dataclass(frozen=True, slots=True)
class TuningRecord:
    """One measured mapping of a layer, in a variant or under the sketch of this name of its
    ``high-level`` program.

    ``choices`` is what ``pipeline.assignment_to_json`` writes. ``time_ms`` is the median of
    ``trials`` runs, first start to last end of the timed launches; ``spread`` their
    interquartile range over the median. Where candidates took turns, those of a turn that was slow
    for most of them are taken at the speed of the usual turn (docs/kernel-bench.md).
    ``extra_bytes`` are written and read within a run beside input, weights and output;
    ``prepared_bytes`` are made once of the weights before any run and are not among them.
    ``relative_error`` is the norm of the difference to a
    float64 reference over the norm of the reference. ``source_hash`` is SHA-256 of the source.
    ``target`` is the processor that the device's compiler generated code for
    (:mod:`mapper.cpu_targets`); empty where there is no choice or it is not known.
    ``schedule`` is the sketch as it was (``nestmap/schedule/1``), for sketches of another release
    may differ; None in a variant, and where it was not kept.
    """

    layer: LayerSpec
    variant: str
    choices: Mapping[str, Any]
    time_ms: float
    spread: float
    trials: int
    tflops: float
    extra_bytes: int
    prepared_bytes: int
    relative_error: float
    source_hash: str
    device: str
    driver: str
    target: str
    commit: str
    date: str
    schedule: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """``nestmap/record/3``; :func:`record_from_json` reads it back."""
        value = asdict(self)
        if self.schedule is None:
            del value["schedule"]
        value["layer"] = self.layer.to_json()
        return {"schema": SCHEMA, **value}


def record_from_json(value: object, path: str = "") -> TuningRecord:
    """Read one record; InputError names every missing, unknown or malformed field."""
    if not isinstance(value, dict):
        raise InputError(Problem(path, "a record is an object", type(value).__name__))
    data = cast("dict[str, Any]", value)
    if data.get("schema") == _WITHOUT_TARGET:
        data = cast("dict[str, Any]", {"target": "", **data, "schema": _WITHOUT_SCHEDULE})
    names = [field.name for field in fields(TuningRecord)]
    problems = [
        Problem(f"{path}/{key}", "unknown field", allowed=", ".join(names))
        for key in data
        if key not in names and key != "schema"
    ]
    wanted = [name for name in names if name != "schedule"]
    problems += [Problem(f"{path}/{key}", "missing field") for key in wanted if key not in data]
    if data.get("schema", SCHEMA) not in (SCHEMA, _WITHOUT_SCHEDULE):
        problems.append(Problem(f"{path}/schema", "unknown schema", repr(data["schema"]), SCHEMA))
    problems += [
        Problem(f"{path}/{key}", "malformed", repr(data[key])[:80], allowed)
        for names_of_kind, accepts, allowed in (
            (_TEXTS, _is_text, "a text"),
            (_FIGURES, _is_figure, "a finite number that is not negative"),
            (_COUNTS, _is_count, "an integer that is not negative"),
            (("choices",), _is_choices, "an object with mapping, parameters, local_sizes"),
            (("layer", "schedule"), _is_object, "an object"),
        )
        for key in names_of_kind
        if key in data and not accepts(data[key])
    ]
    if problems:
        raise InputError(problems)
    values: dict[str, Any] = {name: data[name] for name in names if name in data}
    values["layer"] = LayerSpec.from_json(data["layer"])
    return TuningRecord(**values)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_figure(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and isfinite(value)
        and value >= 0
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _is_choices(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    data = cast("dict[object, object]", value)
    return "mapping" in data and all(
        key in _CHOICES
        and isinstance(part, dict)
        and all(
            map(
                _is_size if key == "local_sizes" else _is_count,
                _values(cast("dict[object, object]", part)),
            )
        )
        for key, part in data.items()
    )


def _values(part: dict[object, object]) -> list[object]:
    return list(part.values())


def _is_size(value: object) -> bool:
    size = cast("list[object]", value) if isinstance(value, list | tuple) else []
    return len(size) == 3 and all(map(_is_count, size))


def records_to_json(records: Iterable[TuningRecord]) -> dict[str, Any]:
    """The value of a file of records."""
    return {"schema": SCHEMA, "records": [record.to_json() for record in records]}


def records_from_json(value: object) -> tuple[TuningRecord, ...]:
    """Read the value of a file of records; InputError for anything else."""
    data = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    listed = data.get("records")
    if data.get("schema") not in _READABLE or not isinstance(listed, list):
        raise InputError(
            Problem("", "is no file of tuning records", "", f'{{"schema": "{SCHEMA}", "records"}}')
        )
    items = cast("list[object]", listed)
    if len(items) > MAX_RECORDS:
        raise InputError(
            Problem("/records", "too many records", str(len(items)), f"at most {MAX_RECORDS}")
        )
    return tuple(record_from_json(item, f"/records/{index}") for index, item in enumerate(items))


def _root() -> Traversable:
    return files("mapper").joinpath("records")


def record_devices() -> tuple[str, ...]:
    """The devices that records are shipped for, sorted."""
    root = _root()
    if not root.is_dir():
        return ()
    return tuple(sorted(entry.name for entry in root.iterdir() if entry.is_dir()))


@lru_cache(maxsize=8)
def shipped_records(device: str) -> tuple[TuningRecord, ...]:
    """All records that are shipped for a device, in the order of their files; none for others."""
    if device not in record_devices():
        return ()
    folder = _root().joinpath(device)
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(_SUFFIX))
    found: list[TuningRecord] = []
    for name in names:
        text = folder.joinpath(name).read_text(encoding="utf-8")
        found += records_from_json(json.loads(text))
    return tuple(found)


def tflops(layer: LayerSpec, time_ms: float) -> float:
    """10^12 floating-point operations a second, a multiply and an add each counted."""
    return layer.operations / max(time_ms, 1e-9) / 1e9


def choices_key(choices: Mapping[str, Any]) -> str:
    """Names a candidate among those of its layer and variant."""
    chosen = {name: value for name, value in choices.items() if value}
    text = json.dumps(chosen, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def same_layer(layer: LayerSpec) -> LayerSpec:
    """The layer without its name: records of one fit the other if these are equal."""
    return replace(layer, name="")


def records_of(records: Iterable[TuningRecord], layer: LayerSpec) -> Iterator[TuningRecord]:
    """The records of a layer, whatever it is called."""
    wanted = same_layer(layer)
    return (record for record in records if same_layer(record.layer) == wanted)


def best_record(
    records: Iterable[TuningRecord],
    layer: LayerSpec,
    max_extra_bytes: int | None = None,
    target: str = "",
) -> TuningRecord | None:
    """The fastest record of a layer that needs at most so many extra bytes; None if none does.

    ``target`` is what the device's compiler generates code for: of the :func:`nearest`.
    """
    fitting = [
        record
        for record in records_of(records, layer)
        if max_extra_bytes is None or record.extra_bytes <= max_extra_bytes
    ]
    return min(nearest(fitting, target), key=lambda record: record.time_ms, default=None)


def nearest(records: Iterable[TuningRecord], target: str) -> list[TuningRecord]:
    """The records that say most of a device whose compiler has a target: those of the very target,
    where there are none those measured with vectors of the same length, then those with shorter
    ones, else all. Times of different processors say nothing of each other."""
    found = list(records)
    least = min((_strangeness(record, target) for record in found), default=0)
    return [record for record in found if _strangeness(record, target) == least]


def _strangeness(record: TuningRecord, target: str) -> int:
    ours, its = vector_bits(target), vector_bits(record.target)
    if ours is None or target == record.target:
        return 0
    if ours == its:
        return 1
    return 2 if its is None or its < ours else 3


def front_of(records: Sequence[TuningRecord]) -> tuple[TuningRecord, ...]:
    """Of each layer the records that no other of its target beats in time and extra bytes, fastest
    first.

    Layers stand in the order in which they come first; equal layers of different names are
    one. Of one source the last record counts: it was measured again.
    """
    latest = {(same_layer(r.layer), r.target, r.source_hash): r for r in records}
    by_layer: dict[tuple[LayerSpec, str], list[TuningRecord]] = {}
    for (layer, target, _), record in latest.items():
        by_layer.setdefault((layer, target), []).append(record)
    kept: list[TuningRecord] = []
    for group in by_layer.values():
        least: int | None = None
        for record in sorted(group, key=lambda r: (r.time_ms, r.extra_bytes)):
            if least is None or record.extra_bytes < least:
                least = record.extra_bytes
                kept.append(record)
    return tuple(kept)
