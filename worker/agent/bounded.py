"""JSON of others, within bounds: how large, how deep, how many values, which types."""

from __future__ import annotations

import json
import math
import re
from typing import Any

MAX_LEVELS = 64
MAX_VALUES = 100_000
_IDENTIFIER = re.compile(r"[A-Za-z0-9_.-]{1,120}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class NotAcceptable(Exception):
    """What came is not what the protocol says; the message names the field."""


def read_object(text: bytes) -> dict[str, Any]:
    """A JSON object of at most 64 levels and 100,000 values; raises NotAcceptable."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise NotAcceptable(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise NotAcceptable("not a JSON object")
    stack: list[tuple[object, int]] = [(value, 1)]
    count = 0
    while stack:
        current, level = stack.pop()
        count += 1
        if level > MAX_LEVELS:
            raise NotAcceptable(f"more than {MAX_LEVELS} levels")
        if count + len(stack) > MAX_VALUES:
            raise NotAcceptable(f"more than {MAX_VALUES} values")
        if isinstance(current, dict):
            stack.extend((inner, level + 1) for inner in current.values())
        elif isinstance(current, list):
            stack.extend((inner, level + 1) for inner in current)
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def field_of(value: dict[str, Any], name: str, kind: type | tuple[type, ...]) -> Any:
    """A field of the type wanted; a bool is no number. Raises NotAcceptable."""
    found = value.get(name)
    if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
        raise NotAcceptable(f"{name}: {ascii(found)[:80]} is not what the protocol says")
    return found


def identifier(value: dict[str, Any], name: str) -> str:
    """A field that names something: it becomes part of URLs and file names."""
    found = field_of(value, name, str)
    if not _IDENTIFIER.fullmatch(found) or found.startswith("."):
        raise NotAcceptable(f"{name}: {ascii(found)[:80]} is no identifier")
    return found


def seconds(value: dict[str, Any], name: str, least: float, most: float) -> float:
    """A field that is a time in seconds, brought into the bounds that make sense here.

    Raises NotAcceptable, for what is no finite number as well.
    """
    try:
        found = float(field_of(value, name, (int, float)))
    except OverflowError:
        raise NotAcceptable(f"{name}: more than any number of seconds") from None
    if not math.isfinite(found):  # 1e999 is read as infinity
        raise NotAcceptable(f"{name}: {found} is no number of seconds")
    return min(max(found, least), most)


def is_sha256(text: object) -> bool:
    """Whether it is 64 hexadecimal digits: the name of an artifact."""
    return isinstance(text, str) and _SHA256.fullmatch(text) is not None
