"""The kernels of earlier records, kept as they ran: what newer ones are held against.

A record says how its kernel is made; those of the convolution template, which is deleted, cannot be
made any more. Here are their sources and host plans.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mapper.errors import InputError, Problem
from mapper.host_plan import HostPlan
from mapper.layer_spec import LayerSpec
from mapper.tuning_records import (
    TuningRecord,
    best_record,
    record_from_json,
    same_layer,
)

SCHEMA = "nestmap/earlier-kernels/1"
#: The file's place in the repository.
ARCHIVE = Path(__file__).parents[1] / "recordings" / "earlier_kernels.json.gz"


@dataclass(frozen=True, slots=True)
class EarlierKernel:
    """A record with the plan that was made of it; ``folder`` is where its device's records are."""

    folder: str
    record: TuningRecord
    plan: HostPlan


def read_archive(path: Path = ARCHIVE) -> tuple[EarlierKernel, ...]:
    """Read an archive of ours; InputError for another file."""
    value: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    if value.get("schema") != SCHEMA:
        raise InputError(Problem(str(path), "unknown schema", repr(value.get("schema")), SCHEMA))
    return tuple(
        EarlierKernel(
            item["folder"], record_from_json(item["record"]), HostPlan.from_json(item["plan"])
        )
        for item in value["kernels"]
    )


def layers_of(
    kernels: Iterable[EarlierKernel], folder: str, names: Sequence[str]
) -> tuple[LayerSpec, ...]:
    """The layers that there are kernels of on a device, each layout for itself: all of these sets
    (``vgg16``) and layers (``boda/3``). InputError names what is not there."""
    every = {same_layer(k.record.layer): k.record.layer for k in kernels if k.folder == folder}
    found = {
        name: [layer for layer in every.values() if f"{layer.name}/".startswith(f"{name}/")]
        for name in names
    }
    if missing := [name for name, layers in found.items() if not layers]:
        raise InputError(Problem("--layers", "no earlier kernel of it", ", ".join(missing), folder))
    return tuple(dict.fromkeys(layer for layers in found.values() for layer in layers))


def fastest_of(
    kernels: Iterable[EarlierKernel], layer: LayerSpec, target: str
) -> EarlierKernel | None:
    """The fastest kernel of a layer for a device's compiler, by what was recorded; None where there
    is none."""
    among = tuple(kernels)
    best = best_record((kernel.record for kernel in among), layer, target=target)
    return next((kernel for kernel in among if kernel.record is best), None)
