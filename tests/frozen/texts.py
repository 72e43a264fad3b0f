"""The texts whose hashes are frozen."""

from __future__ import annotations

from mapper.constraint_rules.rule import Mode
from mapper.errors import InputError, Problem
from mapper.pipeline import generate_kernels, subject_of_layer
from tests.frozen.facts import LAYERS, constraint_lines, named_records, space_of, verdict_on


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
        space = space_of(record.layer, record.variant, device)
        lines = constraint_lines(space.constraints)
        subject = subject_of_layer(record.layer, record.variant)
        return "\n".join(
            [*lines, generate_kernels(subject, verdict_on(record, space).assignment).source]
        )
    raise InputError(Problem(name, "has no text", kind, "constraints/…, record/…"))
