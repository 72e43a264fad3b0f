"""Reads a request: its envelope, what it is about, and the fields of its kind.

Everything that is wrong is reported at once, each with its JSON pointer.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, cast

from mapper.ast_model.bounded_json import kind_of, loads_bounded
from mapper.ast_model.json_reader import JsonObject, JsonReader
from mapper.constraint_rules.rule import Mode
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, LimitError, NestmapError, Problem
from mapper.layer_sets import is_layer_name, layer_of_name, names_in_short
from mapper.pipeline import Subject, subject_of_layer
from mapper.profiles import load_profile, profile_from_json
from mapper.variants import DEFAULT_VARIANT, variants_of
from nestmap.stated import STATED, Stated, stated
from nestmap.subjects import (
    Default,
    default_of,
    sketch_of,
    subject_of_document,
    subject_of_text,
    written_in,
)
from nestmap.tasks.limits import TaskLimits

MAX_REQUEST_BYTES = 16 * 2**20
#: Deeper than any program may be, whose own bound is the one to be named.
MAX_REQUEST_DEPTH = 500
MAX_RESTRICTIONS = 1_000
MAX_ID = 100
#: What a profile may state: sizes beyond these make domains of thousands of local sizes.
MOST_WORK_ITEMS = 65_536
MOST_BYTES = 2**50
ENVELOPE = ("id", "kind", "limits")
ABOUT = ("subject", "variant", "device", "mode", *STATED)
RESTRICTIONS = ("pin", "forbid", "prefer")


@dataclass(frozen=True, slots=True)
class Envelope:
    """A request before its fields are read."""

    id: str
    kind: str
    limits: TaskLimits
    fields: JsonObject


@dataclass(frozen=True, slots=True)
class RestrictionTexts:
    """``pin``, ``forbid`` and ``prefer`` as they came, in the words of the command line."""

    pins: tuple[str, ...] = ()
    forbids: tuple[str, ...] = ()
    prefers: tuple[str, ...] = ()


def read_envelope(line: bytes, kinds: Collection[str]) -> Envelope:
    """A line of stdin as a request; InputError for what is none."""
    value = loads_bounded(line, MAX_REQUEST_BYTES, MAX_REQUEST_DEPTH)
    reader = JsonReader()
    if not isinstance(value, dict):
        raise InputError(Problem("", "a request is an object", kind_of(value), "an object"))
    fields = cast("JsonObject", value)
    kind = fields.get("kind")
    if kind not in kinds:
        reader.fail("/kind", "no such kind of request", kind_of(kind), ", ".join(kinds))
    limits = _limits(reader, fields.get("limits", {}))
    reader.finish()
    return Envelope(request_id(fields), str(kind), limits, fields)


def request_id(fields: JsonObject) -> str:
    """The id that replies get: the request's, or an empty one where it has none."""
    found = fields.get("id", "")
    return str(found)[:MAX_ID] if isinstance(found, str | int) else ""


class Fields:
    """The fields of a request's kind, beside those that all kinds have."""

    def __init__(self, envelope: Envelope, own: Collection[str], about: bool = True) -> None:
        """InputError where there are others than these."""
        self._fields = envelope.fields
        self._reader = JsonReader()
        common = (*ENVELOPE, *ABOUT, *RESTRICTIONS) if about else ENVELOPE
        self._reader.object(envelope.fields, "", ("subject",) if about else (), (*common, *own))
        self._reader.finish()

    def integer(self, name: str, default: int | None, least: int, most: int) -> int | None:
        """An integer within bounds; ``default`` where it is absent or null."""
        value = self._fields.get(name)
        if value is None:
            return default
        number = self._reader.integer(value, f"/{name}")
        if number is not None and not least <= number <= most:
            self._reader.fail(f"/{name}", "out of range", str(number), f"{least} to {most}")
        return number

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._fields.get(name)
        return default if value is None else self._reader.flag(value, f"/{name}") is True

    def object(self, name: str, required: bool = True) -> JsonObject | None:
        """An object as it is."""
        value = self._fields.get(name)
        if value is None and not required:
            return None
        if not isinstance(value, dict):
            self._reader.fail(f"/{name}", "not an object", kind_of(value), "an object")
            return None
        return cast("JsonObject", value)

    def restrictions(self) -> RestrictionTexts:
        """What is pinned, forbidden and preferred."""
        return RestrictionTexts(*(self._texts(name) for name in RESTRICTIONS))

    def finish(self) -> None:
        """InputError with every problem so far."""
        self._reader.finish()

    def _texts(self, name: str) -> tuple[str, ...]:
        value = self._fields.get(name)
        if value is None:
            return ()
        texts = self._reader.items(value, f"/{name}", self._reader.text)
        if len(texts) > MAX_RESTRICTIONS:
            self._reader.fail(
                f"/{name}", "too many restrictions", str(len(texts)), str(MAX_RESTRICTIONS)
            )
        return texts


def read_subject(
    fields: JsonObject, default: Default = DEFAULT_VARIANT, device: DeviceProfile | None = None
) -> Subject:
    """The ``subject`` of a request: ``{"name": "vgg16/7"}``, ``{"document": {…}}`` (a layer, a
    program, a nest tree or a tuning space) or ``{"text": "…"}`` (a program). ``default`` chooses a
    layer's variant where none is named; a program's variants are its sketches for ``device``, and
    a layer has those of the program that it is, too.

    No file is ever opened for it. InputError or LimitError with pointers into the request.
    """
    variant = fields.get("variant")
    if variant is not None and not isinstance(variant, str):
        raise InputError(Problem("/variant", "not a text", kind_of(variant), "a variant's name"))
    subject = fields.get("subject")
    forms = ("name", "document", "text")
    if not isinstance(subject, dict) or len(subject) != 1 or next(iter(subject)) not in forms:
        raise InputError(
            Problem("/subject", "not a subject", kind_of(subject), "an object with one of the "
                    "fields name, document, text")
        )  # fmt: skip
    ((form, value),) = cast("JsonObject", subject).items()
    path = f"/subject/{form}"
    if form != "document" and (not isinstance(value, str) or not value.strip()):
        raise InputError(Problem(path, "not a text", kind_of(value), "a text"))
    default = written_in(variant, default)
    if form == "name":
        name = cast("str", value)
        if not is_layer_name(name):
            raise InputError(Problem(path, "there is no layer of this name", kind_of(value),
                                     names_in_short()))  # fmt: skip
        layer = layer_of_name(name)
        read = _placed("/variant", lambda: subject_of_layer(layer, default_of(default, layer)))
    else:
        of_form = subject_of_document if form == "document" else subject_of_text
        read = _placed(path, lambda: of_form(cast("Any", value), "", None, default))
    sketch = sketch_of(read, variant)
    if sketch in (None, read.variant or None):
        return read
    return _placed("/variant", lambda: _in_sketch(read, cast("str", sketch), device))


def _in_sketch(subject: Subject, name: str, device: DeviceProfile | None) -> Subject:
    if device is None and subject.layer is not None:
        known = ", ".join(variants_of(subject.layer))
        raise InputError(Problem("", "no such variant", name[:80], known))
    if device is None:
        raise InputError(Problem("", "only a layer has variants here", name[:80]))
    # Loads the making of sketches.
    from nestmap.tuning.sketch_subjects import in_variant

    return in_variant(subject, name, device)


def read_device(value: object, path: str = "/device") -> DeviceProfile:
    """A shipped profile by its name, or the JSON form of one; InputError, DeviceError."""
    if isinstance(value, str):
        return load_profile(value)
    profile = profile_from_json(value, path)
    problems = [
        Problem(f"{path}/{name}", "more than can be searched", str(number), f"at most {most}")
        for name, number, most in (
            ("max_work_group_size", profile.max_work_group_size, MOST_WORK_ITEMS),
            *(("max_work_item_sizes", size, MOST_WORK_ITEMS)
              for size in profile.max_work_item_sizes),
            ("local_bytes", profile.local_bytes, MOST_BYTES),
            ("private_bytes", profile.private_bytes, MOST_BYTES),
            ("kernel_private_bytes", profile.kernel_private_bytes or 0, MOST_BYTES),
            ("max_alloc_bytes", profile.max_alloc_bytes, MOST_BYTES),
            ("global_bytes", profile.global_bytes, MOST_BYTES),
            ("compute_units", profile.compute_units, MOST_WORK_ITEMS),
            ("lanes", profile.lanes or 0, MOST_WORK_ITEMS),
            ("vector_registers", profile.vector_registers or 0, MOST_WORK_ITEMS),
            ("vector_bytes", profile.vector_bytes or 0, MOST_WORK_ITEMS),
        )
        if number > most
    ]  # fmt: skip
    if problems:
        raise InputError(problems)
    return profile


def read_mode(value: object) -> Mode:
    """``strict`` or ``paper``; strict where nothing is said."""
    if value is None:
        return Mode.STRICT
    allowed = [mode.value for mode in Mode]
    if value not in allowed:
        raise InputError(Problem("/mode", "no such mode", kind_of(value), ", ".join(allowed)))
    return Mode(value)


def read_stated(fields: JsonObject) -> Stated:
    """What a request states beside subject, device and mode; InputError for what is none of it."""
    reader = JsonReader()
    suits, where = (
        () if fields.get(name) is None else reader.items(fields[name], f"/{name}", reader.text)
        for name in ("suits", "where")
    )
    if len(suits) > MAX_RESTRICTIONS:
        reader.fail("/suits", "too many", str(len(suits)), str(MAX_RESTRICTIONS))

    def flag(name: str, default: bool) -> bool:
        value = fields.get(name)
        return default if value is None else reader.flag(value, f"/{name}") is True

    fusion = flag("sequential_fusion", True)
    replicate, free = flag("replicate_private", False), flag("free_grid", False)
    reader.finish()
    try:
        return stated(suits, fusion, replicate, free, where)
    except InputError as error:
        raise InputError(
            Problem(f"/{p.path}", p.message, p.found, p.allowed, p.remedy) for p in error.problems
        ) from None


def _limits(reader: JsonReader, value: object) -> TaskLimits:
    found = reader.object(value, "/limits", (), ("memory_bytes", "cpu_s", "wall_s"))
    if found is None:
        return TaskLimits()
    numbers: dict[str, Any] = {}
    for name, number in found.items():
        read = reader.number(number, f"/limits/{name}")
        if read is not None and not (math.isfinite(read) and 0 < read <= 2**50):
            reader.fail(f"/limits/{name}", "out of range", str(number), "above 0")
        numbers[name] = int(read or 0) if name == "memory_bytes" else read
    return TaskLimits() if reader.problems else TaskLimits(**numbers)


def _placed(path: str, make: Any) -> Subject:
    """What ``make`` gives; its problems get the pointer of their place in the request."""
    try:
        return make()
    except NestmapError as error:
        kind = LimitError if isinstance(error, LimitError) else InputError
        raise kind(
            Problem(_joined(path, p.path), p.message, p.found, p.allowed, p.remedy)
            for p in error.problems
        ) from error


def _joined(path: str, inner: str) -> str:
    if not inner or inner in ("variant", "layer.variant"):
        return path
    return path + inner if inner.startswith("/") else f"{path}/{inner}"
