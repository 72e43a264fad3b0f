"""What a user names on the command line or in a call, as a :class:`Subject`.

A layer's name (``vgg16/7``), or a file (``-``: standard input) that holds a layer
(``nestmap/layer/2`` or ``/1``), a program (``nestmap/program/1``, or its text form), one under a
schedule (``nestmap/scheduled/1``), a bare nest tree (``nestmap/nest/1``) or a tuning space
(``nestmap/space/1``). Files come from strangers: they are bounded before they are understood.
"""

from __future__ import annotations

import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from mapper.ast_model.bounded_json import check_depth, kind_of, loads_bounded, pointer
from mapper.ast_model.codec import MAX_PROGRAM_DEPTH, PROGRAM_SCHEMA, program_from_json
from mapper.ast_model.nest_codec import NEST_SCHEMA, nest_from_json
from mapper.ast_model.text_form import parse
from mapper.errors import InputError, LimitError, NestmapError, Problem
from mapper.layer_sets import is_layer_name, layer_of_name, names_in_short
from mapper.layer_spec import FIRST_LAYER_SCHEMA, LAYER_SCHEMA, LayerSpec
from mapper.pipeline import (
    Subject,
    subject_of_layer,
    subject_of_nest,
    subject_of_program,
    subject_of_scheduled,
    subject_of_space,
)
from mapper.schedules.scheduled import SCHEDULED_SCHEMA, scheduled_from_json
from mapper.tuning_space.codec import SPACE_SCHEMA, space_from_json
from mapper.variants import DEFAULT_VARIANT, LAST_RESORT, VARIANTS

STDIN = "-"
#: A layer's variant where none is named: one for all, or by the layer.
Default = str | Callable[[LayerSpec], str]
DEFAULT_MAX_BYTES = 8 * 2**20
MAX_NAME_SHOWN = 200
# A program under a schedule is a field of its document.
MAX_DEPTH = MAX_PROGRAM_DEPTH + 1
# Maps and nodes are bounded at 10,000 each, so that more objects cannot be a subject; building
# them first would take seconds and hundreds of megabytes.
MAX_OBJECTS = 100_000
# The rules compare maps with maps: 200 of them, five times the paper's tree, take half a
# minute and half a GB at worst, 1000 would take hours.
MAX_MAPS = 200

#: How JSON writes what no text of a subject may hold, or what looks like it.
_ESCAPED = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")

# A field that only one kind of document has, for documents that state no schema.
_TELLING_FIELDS = (
    ("schedule", SCHEDULED_SCHEMA),
    ("tree", NEST_SCHEMA),
    ("kernels", PROGRAM_SCHEMA),
    ("channels", LAYER_SCHEMA),
    ("parameters", SPACE_SCHEMA),  # a program may have some, too
)


def load_subject(
    x: str,
    variant: str | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
    *,
    default: Default = DEFAULT_VARIANT,
) -> Subject:
    """The layer, program, nest tree or tuning space that ``x`` names; a layer in a variant, or in
    the ``default``.

    A file of that name is preferred to a layer. Raises InputError for everything that is
    wrong with it, LimitError for a program that is too large.
    """
    if is_layer_name(x) and not Path(x).is_file():
        layer = layer_of_name(x)
        return subject_of_layer(layer, variant or default_of(default, layer))
    content = read_bounded(x, max_bytes, or_else=f"or a layer's name: {names_in_short()}")
    shown = "standard input" if x == STDIN else x
    try:
        return subject_of_text(content, _label(x), variant, default)
    except NestmapError as error:
        # The same kind of error, so that each exit code stays what it is.
        raise type(error)(
            Problem(f"{shown}: {p.path}" if p.path else shown, p.message, p.found, p.allowed,
                    p.remedy)
            for p in error.problems
        ) from error  # fmt: skip


def read_bounded(name: str, max_bytes: int = DEFAULT_MAX_BYTES, or_else: str = "") -> str:
    """The text of a file, or of standard input for ``-``.

    InputError where there is none, or it is a directory, unreadable, empty, too long or
    binary.
    """
    shown = "standard input" if name == STDIN else name
    content = _read_stdin(max_bytes) if name == STDIN else _read_file(name, max_bytes, or_else)
    if len(content) > max_bytes:
        raise InputError(
            Problem(shown, "is too long", f"more than {max_bytes} bytes", f"{max_bytes} bytes")
        )
    if b"\0" in content:
        raise InputError(Problem(shown, "is a binary file", "a zero byte", "UTF-8 text"))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            Problem(shown, "is not UTF-8 text", f"byte {error.start}", "UTF-8 text")
        ) from None
    if not text.strip():
        raise InputError(Problem(shown, "is empty", "", "JSON, or the text of a program"))
    return text


def written_in(variant: str | None, default: Default) -> Default:
    """What a layer is read in, to be asked about in a variant: for a sketch as its program is
    written."""
    return LAST_RESORT if variant and variant not in VARIANTS else variant or default


def sketch_of(subject: Subject, variant: str | None) -> str | None:
    """The sketch that a variant's name asks for: any name of a program, of a layer one that none of
    its variants has."""
    own = subject.layer is not None and (not variant or variant in VARIANTS)
    return None if own else variant


def bounded(subject: Subject) -> Subject:
    """The subject itself; LimitError if it has more maps than can be solved."""
    stack = [item for nest in subject.nests for item in nest.roots]
    count = 0
    while stack:
        count += 1
        stack += stack.pop().nested
    if count > MAX_MAPS:
        raise LimitError(
            Problem("", "there are more maps than can be solved", str(count), f"{MAX_MAPS} maps")
        )
    return subject


def _read_stdin(max_bytes: int) -> bytes:
    return sys.stdin.buffer.read(max_bytes + 1)


def _read_file(name: str, max_bytes: int, or_else: str) -> bytes:
    allowed = f"a file, - for standard input{', ' + or_else if or_else else ''}"
    path = Path(name)
    name = name if len(name) <= MAX_NAME_SHOWN else name[:MAX_NAME_SHOWN] + "…"
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise InputError(Problem(name, "is a directory", "", "a file"))
        # A pipe of a shell (`<(…)`) has its writer; one in a folder may wait for ever, and a device
        # may have no end.
        of_shell = stat.S_ISFIFO(mode) and path.parent in (Path("/dev/fd"), Path("/proc/self/fd"))
        if not (stat.S_ISREG(mode) or of_shell):
            raise InputError(Problem(name, "is not a regular file", "", "a file"))
        with path.open("rb") as file:
            return file.read(max_bytes + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(Problem(name, "does not exist", "", allowed)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(Problem(name, f"cannot be read: {reason}")) from None


def _refuse_unstorable(value: object) -> None:
    """PostgreSQL stores no NUL, and half of a surrogate pair has no UTF-8."""
    stack = [(value, "")]
    while stack:
        current, path = stack.pop()
        if isinstance(current, dict):
            for key, inner in cast("dict[str, object]", current).items():
                stack += [(key, path), (inner, pointer(path, key))]
        elif isinstance(current, list):
            found = cast("list[object]", current)
            stack += [(inner, pointer(path, place)) for place, inner in enumerate(found)]
        elif isinstance(current, str) and _UNSTORABLE.search(current):
            raise InputError(
                Problem(ascii(path)[1:-1], "holds a NUL or half of a surrogate pair",
                        ascii(current)[:80], "other characters")
            )  # fmt: skip


def default_of(default: Default, layer: LayerSpec) -> str:
    """The variant of a layer where none is named."""
    return default if isinstance(default, str) else default(layer)


def _label(x: str) -> str:
    return "" if x == STDIN else Path(x).stem


def subject_of_text(
    text: str, label: str = "", variant: str | None = None, default: Default = DEFAULT_VARIANT
) -> Subject:
    """The subject of a document's text: JSON, or a program's text form.

    Raises InputError for everything that is wrong with it, LimitError if it is too large.
    """
    if text.lstrip()[:1] not in ("{", "["):
        _refuse_variant(variant, "a program")
        return bounded(subject_of_program(parse(text)))
    objects = text.count("{")
    if objects > MAX_OBJECTS:
        raise InputError(
            Problem("", "there are too many maps or nodes", f"{objects} objects",
                    f"{MAX_OBJECTS} objects")
        )  # fmt: skip
    value = loads_bounded(text, max_bytes=2 * len(text) + 2**20, max_depth=MAX_DEPTH)
    if _ESCAPED.search(text):
        _refuse_unstorable(value)
    return subject_of_document(value, label, variant, default)


def subject_of_document(
    value: object, label: str = "", variant: str | None = None, default: Default = DEFAULT_VARIANT
) -> Subject:
    """As :func:`subject_of_text`, of a JSON value; a layer or space without a name gets the
    label."""
    check_depth(value, MAX_DEPTH)
    if not isinstance(value, dict):
        raise InputError(Problem("", "is not an object", kind_of(value), "an object"))
    fields = dict(cast("dict[str, Any]", value))
    return bounded(_subject_of_fields(fields, label, variant, default))


def _subject_of_fields(
    fields: dict[str, Any], label: str, variant: str | None, default: Default
) -> Subject:
    match _schema(fields):
        case "nestmap/layer/1" | "nestmap/layer/2":
            fields.setdefault("name", label or "layer")
            layer = LayerSpec.from_json(fields)
            return subject_of_layer(layer, variant or default_of(default, layer))
        case "nestmap/program/1":
            _refuse_variant(variant, "a program")
            return subject_of_program(program_from_json(fields))
        case "nestmap/scheduled/1":
            scheduled = scheduled_from_json(fields)
            if variant not in (None, scheduled.schedule.name):
                _refuse_variant(variant, "a program under a schedule")
            return subject_of_scheduled(scheduled)
        case "nestmap/space/1":
            _refuse_variant(variant, "a tuning space")
            fields.setdefault("schema", SPACE_SCHEMA)
            fields.setdefault("name", label or "space")
            return subject_of_space(space_from_json(fields))
        case _:
            _refuse_variant(variant, "a nest tree")
            return subject_of_nest(nest_from_json(fields).nest)


def _schema(fields: dict[str, Any]) -> str:
    schemas = (
        LAYER_SCHEMA, FIRST_LAYER_SCHEMA, PROGRAM_SCHEMA, SCHEDULED_SCHEMA, NEST_SCHEMA,
        SPACE_SCHEMA,
    )  # fmt: skip
    if "schema" in fields:
        if fields["schema"] in schemas:
            return fields["schema"]
        raise InputError(
            Problem("/schema", "unknown schema", kind_of(fields["schema"]), ", ".join(schemas))
        )
    for field, schema in _TELLING_FIELDS:
        if field in fields:
            return schema
    found = ", ".join(map(repr, list(fields)[:8])) or "an empty object"
    raise InputError(
        Problem(
            "",
            "is neither a layer nor a program nor a nest tree nor a tuning space",
            found,
            "a field schema: " + ", ".join(schemas),
        )
    )


def _refuse_variant(variant: str | None, what: str) -> None:
    if variant is not None:
        raise InputError(
            Problem("variant", f"{what} has no variants, only a layer has", repr(variant))
        )
