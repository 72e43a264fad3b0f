"""The texts whose hashes are frozen."""

from __future__ import annotations

from mapper.constraint_rules.rule import Mode
from mapper.errors import InputError, Problem
from mapper.pipeline import generate_kernels
from tests.frozen.facts import (
    LAYERS,
    constraint_lines,
    named_records,
    recorded,
    space_of,
    verdict_on,
)


def text_behind(name: str) -> str:
    """Constraints of a fact ``constraints/…``; of a ``record/…`` its kernels too."""
    kind, _, rest = name.partition("/")
    if kind == "constraints":
        variant, layer, device, mode = rest.split("/")
        (found,) = (known for known in LAYERS if known.name == layer)
        return "\n".join(constraint_lines(space_of(found, variant, device, Mode(mode)).constraints))
    if kind == "record":
        device = rest.partition("/")[0]
        record = dict(named_records(device))[name]
        subject, space = recorded(record, device)
        lines = constraint_lines(space.constraints)
        return "\n".join(
            [*lines, generate_kernels(subject, verdict_on(record, space).assignment).source]
        )
    raise InputError(Problem(name, "has no text", kind, "constraints/…, record/…"))
