"""How well times are ranked without measuring: guesses and models judged on recorded layers.

Each is asked for the candidates of one recorded layer, which it was not fitted to; Spearman's rank
correlation with the recorded times says how good it would be as the start of a search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.searches.layer_recording import group_of_recording
from bench.searches.recording import Recording
from bench.searches.replay import is_layer, layer_name
from mapper.cost.analytic import Counts, DeviceConstants, fitted, predicted_ms, rank_correlation
from mapper.errors import InputError, Problem
from nestmap.tuning.descriptions import CONSTANTS
from nestmap.tuning.learned import Group, LearnedModel
from nestmap.tuning.transfer_features import estimates_of_rows

#: Own measurements that a learned model is updated with, where that is judged.
OWN = 20

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RecordedLayer:
    """A recorded layer with what is known of each row without running it: logarithms of the
    ``proxy`` and of the ``analytic`` model's time (constants of no device), and its ``counts``."""

    recording: Recording
    group: Group
    proxy: Floats
    analytic: Floats
    counts: tuple[Counts, ...]

    @staticmethod
    def of(recording: Recording) -> RecordedLayer:
        """InputError for a recording of no layer, or of one that has to be described anew."""
        if not is_layer(recording):
            raise InputError(Problem(recording.name, "is no recording of a layer"))
        group = group_of_recording(recording)
        return RecordedLayer(recording, group, *estimates_of_rows(group.rows))

    @property
    def timed(self) -> NDArray[np.bool_]:
        """Rows with a time."""
        return ~np.isnan(self.recording.time_ms)

    def predicted(self, constants: DeviceConstants) -> Floats:
        """The analytic model's times in ms."""
        return np.array([predicted_ms(counts, constants) for counts in self.counts])

    def correlation(self, predicted: Floats, judged: NDArray[np.bool_] | None = None) -> float:
        """Of predictions for all rows with the recorded times, where both are (``judged``)."""
        on = self.timed if judged is None else self.timed & judged
        return rank_correlation(predicted[on].tolist(), self.recording.time_ms[on].tolist())


def rankings(layers: Sequence[RecordedLayer], seed: int = 0) -> dict[str, dict[str, float]]:
    """For each layer, rank correlations of: ``proxy``; ``analytic`` (constants of no device);
    ``guess`` (their product, which a search starts from); ``analytic, fitted`` to the other layers
    of its device; ``learned`` from these; ``learned, all`` (from other devices too); and ``learned,
    own``: with :data:`OWN` of its own rows learned as well, judged on the rest. NaN where there is
    no other layer."""
    return {layer.recording.name: _ranking(layer, layers, seed) for layer in layers}


def _ranking(layer: RecordedLayer, layers: Sequence[RecordedLayer], seed: int) -> dict[str, float]:
    # None of the layer itself, in whatever variant and size.
    own = layer_name(layer.recording)
    others = [other for other in layers if layer_name(other.recording) != own]
    alike = [other for other in others if other.recording.device == layer.recording.device]
    found = {
        "proxy": layer.correlation(layer.proxy),
        "analytic": layer.correlation(layer.analytic),
        "guess": layer.correlation(layer.proxy + layer.analytic),
        "analytic, fitted": float("nan"),
        "learned": float("nan"),
        "learned, all": float("nan"),
        "learned, own": float("nan"),
    }
    if alike:
        pairs = [
            (counts, float(time_ms))
            for other in alike
            for counts, time_ms in zip(other.counts, other.recording.time_ms, strict=True)
            if not np.isnan(time_ms)
        ]
        constants, _ = fitted([c for c, _ in pairs], [t for _, t in pairs], CONSTANTS.lanes)
        found["analytic, fitted"] = layer.correlation(layer.predicted(constants))
        found["learned"] = _learned(layer, alike, seed)
    if others:
        found["learned, all"] = _learned(layer, others, seed)
        found["learned, own"] = _learned(layer, others, seed, own=OWN)
    return found


def _learned(
    layer: RecordedLayer, others: Sequence[RecordedLayer], seed: int, own: int = 0
) -> float:
    whole = layer.group
    groups = [other.group for other in others]
    judged = np.ones(len(whole.rows), np.bool_)
    if own:
        judged[:own] = False
        groups.append(replace(whole, rows=whole.rows[:own], log_times=whole.log_times[:own]))
    model = LearnedModel(groups, seed)
    return layer.correlation(model.predict(whole.rows, whole.rows, whole.parameters), judged)


def table(found: Mapping[str, Mapping[str, float]], layers: Sequence[RecordedLayer]) -> str:
    """The rankings as markdown, and their medians in the last line."""
    names = list(next(iter(found.values())))
    lines = [
        "| layer | device | timed | " + " | ".join(names) + " |",
        "|" + " --- |" * (len(names) + 3),
    ]
    for layer in layers:
        recording = layer.recording
        cells = [_cell(found[recording.name][name]) for name in names]
        timed = int(layer.timed.sum())
        lines.append(f"| {recording.name} | {recording.device} | {timed} | {' | '.join(cells)} |")
    medians = [_cell(_median([row[name] for row in found.values()])) for name in names]
    lines.append(f"| median | | | {' | '.join(medians)} |")
    return "\n".join(lines)


def _median(values: Sequence[float]) -> float:
    there = [value for value in values if not np.isnan(value)]
    return float(np.median(there)) if there else float("nan")


def _cell(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.2f}"


def rankings_json(found: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """A plain JSON value; None where nothing could be fitted."""
    return {
        layer: {name: None if np.isnan(value) else round(value, 4) for name, value in row.items()}
        for layer, row in found.items()
    }
