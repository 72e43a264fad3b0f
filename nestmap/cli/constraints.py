"""``nestmap constraints``: every constraint instance, where it comes from and why."""

from __future__ import annotations

from itertools import groupby

from mapper.constraint_rules.predicate import to_text
from mapper.constraint_rules.rule import Mode
from mapper.pipeline import rule_counts
from nestmap.answers import constraint_to_json
from nestmap.cli.output import write_json, write_table
from nestmap.cli.request import (
    DeviceOption,
    JsonOption,
    ModeOption,
    SeedOption,
    VariantOption,
    XArgument,
    prepare,
)
from nestmap.device_limits import DEFAULT_DEVICE

MAX_PREDICATE_SHOWN = 300


def constraints(
    x: XArgument,
    variant: VariantOption = None,
    mode: ModeOption = Mode.STRICT,
    device: DeviceOption = DEFAULT_DEVICE,
    seed: SeedOption = 0,
    json_output: JsonOption = False,
) -> None:
    """List every constraint that a mapping must satisfy, rule by rule."""
    del seed  # every command has it; nothing here is random
    request = prepare(x, variant, mode, device)
    if json_output:
        for constraint in request.space.constraints:
            write_json(constraint_to_json(constraint))
        return
    for rule, group in groupby(request.space.constraints, key=lambda constraint: constraint.rule):
        instances = list(group)
        rows = ((c.id, _shortened(to_text(c.predicate)), c.sentence) for c in instances)
        title = f"{rule} ({instances[0].provenance}): {len(instances)}"
        write_table(("id", "predicate", "why"), rows, title)
    counts = rule_counts(request.space, request.mode)
    rows = [
        *counts.constraints.items(),
        ("all but preferences", sum(counts.constraints.values())),
        *counts.preferences.items(),
    ]
    write_table(("rule", "constraints"), rows, right=("constraints",))


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_PREDICATE_SHOWN else text[:MAX_PREDICATE_SHOWN] + "…"
