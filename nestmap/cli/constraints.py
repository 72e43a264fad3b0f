"""``nestmap constraints``: every constraint instance, where it comes from and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from mapper.constraint_rules.rule import Mode
from nestmap.answers import constraint_counts, constraint_to_json
from nestmap.cli.output import write_json, write_table
from nestmap.cli.remote import (
    TokenFileOption,
    UrlOption,
    asking,
    question_of,
    service_at,
    subject_of,
)
from nestmap.cli.request import (
    DeviceOption,
    FreeGridOption,
    JsonOption,
    ModeOption,
    ReplicatePrivateOption,
    SeedOption,
    SequentialFusionOption,
    SuitsOption,
    VariantOption,
    WhereOption,
    XArgument,
    prepare,
    stated_by,
)
from nestmap.device_limits import DEFAULT_DEVICE

MAX_PREDICATE_SHOWN = 300


def constraints(
    x: XArgument,
    variant: VariantOption = None,
    mode: ModeOption = Mode.STRICT,
    suits: SuitsOption = None,
    sequential_fusion: SequentialFusionOption = True,
    replicate_private: ReplicatePrivateOption = False,
    free_grid: FreeGridOption = False,
    where: WhereOption = None,
    device: DeviceOption = DEFAULT_DEVICE,
    seed: SeedOption = 0,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json_output: JsonOption = False,
) -> None:
    """List every constraint that a mapping must satisfy, rule by rule."""
    del seed  # every command has it; nothing here is random
    stated = stated_by(suits, sequential_fusion, replicate_private, free_grid, where)
    request = prepare(x, variant, mode, device, stated)
    listed: Sequence[Mapping[str, Any]]
    if (service := service_at(url, token_file)) is None:
        listed = [constraint_to_json(constraint) for constraint in request.space.constraints]
        counts = constraint_counts(request)
    else:
        with service, asking(request):
            found = service.constraints(subject_of(request), **question_of(request, 0))
        listed, counts = found["constraints"], found["counts"]
    if json_output:
        for constraint in listed:
            write_json(constraint)
        return
    for rule, group in groupby(listed, key=lambda constraint: constraint["rule"]):
        instances = list(group)
        rows = ((c["id"], _shortened(c["predicate"]), c["sentence"]) for c in instances)
        title = f"{rule} ({instances[0]['provenance']}): {len(instances)}"
        write_table(("id", "predicate", "why"), rows, title)
    rows = [
        *counts["constraints"].items(),
        ("all but preferences", sum(counts["constraints"].values())),
        *counts["preferences"].items(),
    ]
    write_table(("rule", "constraints"), rows, right=("constraints",))


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_PREDICATE_SHOWN else text[:MAX_PREDICATE_SHOWN] + "…"
