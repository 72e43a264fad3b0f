"""Networks layer by layer: what of each has been measured, as far as the store knows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from api.layer_programs import layer_of
from db.canonical import canonical_json, content_hash
from db.farm.fronts import StudiedPoint
from db.farm.run_records import Run
from mapper.layer_sets import LayerSet
from mapper.layer_spec import LayerSpec

_DIGITS = "0123456789"


@dataclass(frozen=True, slots=True)
class LayerFront:
    """A layer with its newest run that timed something, None where none did, and the front of
    all its runs on that run's device. ``count`` is how often it stands in its network."""

    name: str
    path: str
    layer: LayerSpec
    count: int
    run: Run | None
    front: tuple[StudiedPoint, ...]

    @property
    def fastest(self) -> StudiedPoint | None:
        """The first of the front."""
        return self.front[0] if self.front else None

    @property
    def smallest(self) -> StudiedPoint | None:
        """The last of the front."""
        return self.front[-1] if self.front else None


@dataclass(frozen=True, slots=True)
class Sum:
    """Of a network's measured layers: how many of its convolutions they are, and the time of
    all of these with the fastest kernels, one after the other, and with the smallest ones."""

    measured: int
    in_all: int
    fastest_ms: float
    fastest_bytes: int
    smallest_ms: float
    smallest_bytes: int


def layer_key(layer: LayerSpec) -> str:
    """What two layers have in common that are the same, whatever they are called."""
    return content_hash(canonical_json({**layer.to_json(), "name": ""}))


def runs_by_layer(runs: Iterable[Run]) -> dict[str, tuple[Run, ...]]:
    """Of these runs, newest first, those that timed something, by the key of their layer: of each
    layer those on the device of the newest one."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        layer = layer_of(run.request.get("subject", {}))
        if layer is not None and run.progress.best_ms is not None:
            own = found.setdefault(layer_key(layer), [])
            if not own or own[0].board_id == run.board_id:
                own.append(run)
    return {key: tuple(own) for key, own in found.items()}


def merged_front(fronts: Iterable[Sequence[StudiedPoint]]) -> tuple[StudiedPoint, ...]:
    """The front of several fronts, fastest first; of equals one."""
    points = sorted(
        (point for front in fronts for point in front),
        key=lambda point: (point.time_ms, point.memory_bytes, point.candidate_id),
    )
    kept: list[StudiedPoint] = []
    for point in points:
        if not kept or point.memory_bytes < kept[-1].memory_bytes:
            kept.append(point)
    return tuple(kept)


def measured_layers(found: LayerSet, runs: Mapping[str, tuple[Run, ...]]) -> int:
    """How many of a set's layers have a run."""
    return sum(layer_key(row.layer) in runs for row in found.layers)


def in_reading_order(name: str) -> list[tuple[int, str]]:
    """A key for names: numbers within them count as numbers, so that conv10 is behind conv9."""
    parts = re.findall(r"[0-9]+|[^0-9]+", name.casefold())
    return [(int(part[:18]), "") if part[0] in _DIGITS else (10**18, part) for part in parts]


def sum_of(layers: Sequence[LayerFront]) -> Sum:
    """The sum over a network. Memory is the largest of all layers: one runs after the other."""
    fastest = [(row.count, row.fastest) for row in layers if row.fastest is not None]
    smallest = [(row.count, row.smallest) for row in layers if row.smallest is not None]
    return Sum(
        sum(row.count for row in layers if row.front),
        sum(row.count for row in layers),
        sum(count * point.time_ms for count, point in fastest),
        max((point.memory_bytes for _, point in fastest), default=0),
        sum(count * point.time_ms for count, point in smallest),
        max((point.memory_bytes for _, point in smallest), default=0),
    )
