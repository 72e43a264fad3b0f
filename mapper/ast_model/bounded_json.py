"""JSON from strangers: bounded in bytes, depth and numbers before anything is built."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn, cast

from mapper.errors import InputError, Problem

MAX_BYTES = 8 * 2**20
MAX_DEPTH = 512

# Brackets and commas outside strings. A string that is not closed runs to the end, so that the scan
# stays linear whatever the text is.
_SCAN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{},]', re.DOTALL)


class TooManyValues(InputError):
    """The text has more values than are accepted; nothing of it was built."""


def loads_bounded(
    text: str | bytes,
    max_bytes: int = MAX_BYTES,
    max_depth: int = MAX_DEPTH,
    max_values: int | None = None,
) -> Any:
    """The value of a JSON text.

    Raises TooManyValues where commas or brackets say that there are more than ``max_values``
    values (a text with fewer of both may still have more), InputError for more than ``max_bytes``
    bytes, more than ``max_depth`` nested brackets, bytes that are not UTF-8, malformed JSON, a key
    twice in one object, NaN and infinities, and integers beyond 64 bits.
    """
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "surrogatepass"))
    if size > max_bytes:
        raise InputError(Problem("", "the JSON text is too long", f"{size} bytes",
                                 f"{max_bytes} bytes"))  # fmt: skip
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError(
                Problem("", "the JSON text is not UTF-8", f"byte {error.start}")
            ) from None
    depth = opened = commas = 0
    most = max_values if max_values is not None else size
    for match in _SCAN.finditer(text):
        bracket = match.group()
        if bracket == ",":
            commas += 1
        elif bracket in ("[", "{"):
            depth += 1
            opened += 1
        if opened > most or commas >= most:
            raise TooManyValues(
                Problem("", "the JSON text has too many values", f"over {most}", f"{most} values")
            )
        if bracket in ("]", "}"):
            depth -= 1
        if depth > max_depth:
            limit = f"{max_depth} levels"
            raise InputError(
                Problem("", "the JSON text is nested too deeply", f"over {limit}", limit)
            )
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_no_constant,
            parse_int=_integer,
            parse_float=_float,
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InputError(Problem(place, f"malformed JSON: {error.msg}")) from None
    except RecursionError:  # the caller itself stands deep in the stack
        raise InputError(
            Problem("", "the JSON text is nested too deeply to be read here")
        ) from None


def check_depth(value: object, max_depth: int = MAX_DEPTH) -> None:
    """InputError if a JSON value that came without its text is nested too deeply."""
    stack = [(value, 1)]
    while stack:
        current, depth = stack.pop()
        if depth > max_depth:
            raise InputError(Problem("", "the JSON value is nested too deeply", "",
                                     f"{max_depth} levels"))  # fmt: skip
        if isinstance(current, dict):
            stack += [(v, depth + 1) for v in cast(dict[object, object], current).values()]
        elif isinstance(current, list):
            stack += [(v, depth + 1) for v in cast(list[object], current)]


def pointer(path: str, key: str | int) -> str:
    """``path`` of RFC 6901, one step further."""
    return f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"


def object_keys(value: object) -> tuple[str, ...]:
    """The keys of an object that may have any; none for anything else."""
    return tuple(cast(dict[str, object], value)) if isinstance(value, dict) else ()


def kind_of(value: object) -> str:
    """What a JSON value is, for messages: its kind, and itself where it is short."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value!r}"[:60]
        case str():
            return f"the text {value!r}" if len(value) <= 60 else f"the text {value[:60]!r}…"
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return f"a {type(value).__name__}"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InputError(Problem("", "a key stands twice in one object", repr(key)[:80]))
            seen.add(key)
    return result


def _no_constant(name: str) -> NoReturn:
    raise InputError(Problem("", "not a number of JSON", name, "finite numbers"))


def _integer(digits: str) -> int:
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**63:
        raise InputError(Problem("", "an integer is too large", digits[:24], "64 bits"))
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise InputError(Problem("", "a number is too large", digits[:24], "finite numbers"))
    return value
