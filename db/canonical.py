"""JSON in one spelling, so that equal values have equal texts and equal hashes."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from mapper.errors import InputError, Problem

#: What schemas of programs with schedules begin with.
_SCHEDULED = "nestmap/scheduled/"


def canonical_json(value: Any) -> str:
    """``value`` as JSON with sorted keys, no spaces, ASCII only and no NaN or infinity.

    NaN is refused because PostgreSQL refuses it; ASCII lets any Python text through, lone
    surrogates from driver messages included.
    """
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(Problem("", f"not a JSON value: {error}")) from error


def plain_json(value: Any) -> Any:
    """``value`` as it will be read back: tuples are lists, keys are strings."""
    return json.loads(canonical_json(value))


def content_hash(text: str) -> str:
    """The SHA-256 of ``text``, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def written_hash(schema: str, document: Any, own: str) -> str:
    """The hash of the program that a document has a schedule for; its ``own`` where it has none."""
    is_scheduled = schema.startswith(_SCHEDULED) and isinstance(document, dict)
    program = document.get("program") if is_scheduled else None
    return own if program is None else content_hash(canonical_json(program))
