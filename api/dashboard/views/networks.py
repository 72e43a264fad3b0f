"""Networks layer by layer: what of each has been measured, as far as the store knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from api.dashboard.views.references import layer_of
from db.canonical import canonical_json, content_hash
from db.farm.fronts import StudiedPoint
from db.farm.run_records import Run
from mapper.layer_sets import LayerSet
from mapper.layer_spec import LayerSpec


@dataclass(frozen=True, slots=True)
class LayerFront:
    """A layer with the front of its newest run that timed something; both None where no run
    did. ``count`` is how often it stands in its network."""

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


def newest_runs(runs: Iterable[Run]) -> dict[str, Run]:
    """The first of these runs, newest first, of each layer that has a time, by its key."""
    found: dict[str, Run] = {}
    for run in runs:
        layer = layer_of(run.request.get("subject", {}))
        if layer is not None and run.progress.best_ms is not None:
            found.setdefault(layer_key(layer), run)
    return found


def measured_layers(found: LayerSet, runs: dict[str, Run]) -> int:
    """How many of a set's layers have a run."""
    return sum(layer_key(row.layer) in runs for row in found.layers)


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
