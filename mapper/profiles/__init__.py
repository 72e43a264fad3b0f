"""Device profiles shipped with nestmap: limits as TOML, for devices that are not at hand."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, replace
from importlib.resources import files
from typing import Any, cast

from mapper.cpu_targets import vector_bits, vector_registers, vector_widths
from mapper.device_profile import LOCAL_MEMORIES, VECTOR_WIDTHS, DeviceProfile
from mapper.errors import DeviceError, InputError, Problem

_SUFFIX = ".toml"
_COUNTS = (
    "max_work_group_size",
    "local_bytes",
    "private_bytes",
    "max_alloc_bytes",
    "global_bytes",
    "compute_units",
)
_SHAPES = ("max_work_item_sizes", "vector_widths")
_REQUIRED = ("name", "source", "max_work_item_sizes", *_COUNTS)
_FLAGS = ("half_precision", "half_storage")
#: Counts that a device need not have; null is none.
_OPTIONAL_COUNTS = ("kernel_private_bytes", "lanes", "vector_registers", "vector_bytes")
#: Texts that may be empty, and are not there in profiles from before.
_OPTIONAL_TEXTS = ("target",)
#: Texts that are one of a few.
_CHOICES = {"local_memory": LOCAL_MEMORIES}
_OPTIONAL = ("vector_widths", *_OPTIONAL_COUNTS, *_FLAGS, *_OPTIONAL_TEXTS, *_CHOICES)
#: LLVM's names of targets are shorter.
_MOST_CHARACTERS = 100


def profile_names() -> tuple[str, ...]:
    """The names that :func:`load_profile` knows, sorted."""
    names = (entry.name for entry in files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)))


def load_profile(name: str) -> DeviceProfile:
    """Read one shipped profile.

    Raises DeviceError for a name that is not shipped, and for a file with missing, unknown
    or malformed fields (all of them named).
    """
    if name not in profile_names():
        raise DeviceError(
            Problem(
                "profile", "no such device profile", found=name, allowed=", ".join(profile_names())
            )
        )
    text = files(__name__).joinpath(name + _SUFFIX).read_text(encoding="utf-8")
    return parse_profile(name, text)


def parse_profile(name: str, text: str) -> DeviceProfile:
    """Turn a profile's TOML text into a value; raises DeviceError naming every bad field."""
    try:
        fields = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DeviceError(Problem(f"profile/{name}", "is not TOML", found=str(error))) from error
    problems = _problems(f"profile/{name}", name, fields)
    if problems:
        raise DeviceError(problems)
    return _profile(fields)


def profile_from_json(value: object, path: str = "profile") -> DeviceProfile:
    """A profile as a JSON object, with the fields of the shipped files and any name.

    InputError names every bad field below ``path``.
    """
    if not isinstance(value, dict):
        raise InputError(Problem(path, "not a profile", type(value).__name__, "an object"))
    fields = dict(cast("dict[str, Any]", value))
    fields.setdefault("source", "given")
    name = fields.get("name")
    problems = _problems(path, name if isinstance(name, str) else "", fields)
    if problems:
        raise InputError(problems)
    return _profile(fields)


def profile_to_json(profile: DeviceProfile) -> dict[str, Any]:
    """What :func:`profile_from_json` reads."""
    value = asdict(profile)
    return {**value, **{name: list(value[name]) for name in _SHAPES}}


def _profile(fields: dict[str, Any]) -> DeviceProfile:
    fields["max_work_item_sizes"] = tuple(fields["max_work_item_sizes"])
    if "vector_widths" in fields:
        fields["vector_widths"] = tuple(fields["vector_widths"])
    return with_registers(DeviceProfile(**fields))


def with_registers(profile: DeviceProfile) -> DeviceProfile:
    """A processor's profile with the vector registers of its target, where it states none.

    :mod:`mapper.cpu_targets` knows those; profiles from before have no such fields, and those
    without a target the registers of their widest vector. OpenCL's local memory is ordinary memory
    of a processor, which executes work-items one after the other.
    """
    if not profile.is_processor or profile.vector_registers is not None:
        return profile
    bits = vector_bits(profile.target) or 32 * max(profile.vector_widths)
    return replace(
        profile,
        lanes=profile.lanes or 1,
        vector_registers=vector_registers(vector_widths(bits)),
        vector_bytes=profile.vector_bytes or bits // 8,
        local_memory=profile.local_memory or "ordinary",
    )


def _problems(path: str, name: str, fields: dict[str, Any]) -> list[Problem]:
    problems = [
        Problem(f"{path}/{field}", "missing field") for field in _REQUIRED if field not in fields
    ]
    for field, value in fields.items():
        where = f"{path}/{field}"
        if field not in _REQUIRED + _OPTIONAL:
            problems.append(
                Problem(where, "unknown field", allowed=", ".join(_REQUIRED + _OPTIONAL))
            )
        elif not _acceptable(field, value):
            problems.append(Problem(where, "malformed", repr(value), _allowed(field)))
    if fields.get("name", name) != name:
        problems.append(Problem(f"{path}/name", "not the file's name", repr(fields["name"]), name))
    return problems


def _acceptable(field: str, value: object) -> bool:
    if field in _COUNTS:
        return _is_count(value)
    if field in _OPTIONAL_COUNTS:
        return value is None or _is_count(value)
    if field in _SHAPES:
        if not isinstance(value, list):
            return False
        items = cast("list[object]", value)
        if field == "vector_widths":
            return bool(items) and all(_is_count(i) and i in VECTOR_WIDTHS for i in items)
        return len(items) == 3 and all(_is_count(item) for item in items)
    if field in _FLAGS:
        return isinstance(value, bool)
    if field in _CHOICES:
        return value in _CHOICES[field]
    if field in _OPTIONAL_TEXTS:
        return isinstance(value, str) and len(value) <= _MOST_CHARACTERS
    return isinstance(value, str) and bool(value)


def _is_count(value: object) -> bool:
    # bool is a subclass of int, and "true" is no count.
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _allowed(field: str) -> str:
    if field in _COUNTS:
        return "a positive integer"
    if field in _OPTIONAL_COUNTS:
        return "a positive integer, or nothing"
    if field == "max_work_item_sizes":
        return "three positive integers"
    if field == "vector_widths":
        return "a list of " + ", ".join(str(width) for width in VECTOR_WIDTHS)
    if field in _CHOICES:
        return ", ".join(choice or "nothing" for choice in _CHOICES[field])
    if field in _OPTIONAL_TEXTS:
        return f"a text of at most {_MOST_CHARACTERS} characters"
    return "true or false" if field in _FLAGS else "a text that is not empty"
