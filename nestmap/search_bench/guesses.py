"""How well times are ranked without measuring: guesses and models judged on recorded layers.

Each is asked for the candidates of one recorded layer, which it was not fitted to; Spearman's rank
correlation with the recorded times says how good it would be as the start of a search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.cost.analytic import fitted, rank_correlation
from mapper.device_profile import DeviceProfile
from mapper.errors import InputError, Problem
from nestmap.search_bench.layer_recording import SCHEMA, described_rows
from nestmap.search_bench.recording import Recording
from nestmap.tuning.descriptions import CONSTANTS, Description
from nestmap.tuning.learned import Group, LearnedModel
from nestmap.tuning.transfer_features import transfer_row

#: Own measurements that a learned model is updated with, where that is judged.
OWN = 20

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RecordedLayer:
    """A recorded layer with what is known of each row without running it."""

    recording: Recording
    device: DeviceProfile
    descriptions: tuple[Description, ...]

    @staticmethod
    def of(recording: Recording) -> RecordedLayer:
        """Describe every row anew, by today's generator and counts. InputError for a recording
        of no layer."""
        if recording.document.get("schema") != SCHEMA:
            raise InputError(Problem(recording.name, "is no recording of a layer"))
        device, descriptions = described_rows(recording)
        return RecordedLayer(recording, device, descriptions)

    @property
    def timed(self) -> NDArray[np.bool_]:
        """Rows with a time."""
        return ~np.isnan(self.recording.time_ms)

    @cached_property
    def group(self) -> Group:
        """All rows, for a model to learn from."""
        times = np.where(self.timed, self.recording.time_ms, np.inf)
        rows = np.array([transfer_row(found, self.device) for found in self.descriptions])
        names = self.descriptions[0].parameter_names
        return Group(self.recording.name, rows, np.log(times), names)

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
    descriptions = layer.descriptions
    others = [other for other in layers if other is not layer]
    alike = [other for other in others if other.recording.device == layer.recording.device]
    found = {
        "proxy": layer.correlation(np.array([d.proxy for d in descriptions])),
        "analytic": layer.correlation(np.array([d.predicted(CONSTANTS) for d in descriptions])),
        "guess": layer.correlation(np.array([d.guess(CONSTANTS) for d in descriptions])),
        "analytic, fitted": float("nan"),
        "learned": float("nan"),
        "learned, all": float("nan"),
        "learned, own": float("nan"),
    }
    if alike:
        pairs = [
            (description.counts, float(time_ms))
            for other in alike
            for description, time_ms in zip(
                other.descriptions, other.recording.time_ms, strict=True
            )
            if not np.isnan(time_ms)
        ]
        constants, _ = fitted([c for c, _ in pairs], [t for _, t in pairs], CONSTANTS.lanes)
        found["analytic, fitted"] = layer.correlation(
            np.array([d.predicted(constants) for d in descriptions])
        )
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
