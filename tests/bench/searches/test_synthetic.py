"""Invented devices: reproducible, and hard in the way that measured spaces are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench.searches.invented import SPACES, invented_recordings, thinned
from bench.searches.recording import Recording
from bench.searches.replay import Arena
from bench.searches.synthetic import Kind, synthetic_recording
from bench.space_solving.cases import ROOT
from mapper.search.candidates import candidates_of
from mapper.tuning_space.codec import space_from_json
from mapper.tuning_space.lowering import solver_space

DOCUMENT: dict[str, Any] = {
    "schema": "nestmap/space/1",
    "name": "sizes",
    "parameters": {
        "x": [16, 32, 48, 64, 96, 128, 256],
        "y": [1, 2, 4, 8, 16],
        "t": [1, 2, 3, 4, 6, 8],
        "u": [1, 2, 4, 8],
        "pad": [0, 1],
    },
    "constraints": ["x * y <= 512"],
}
SPACE = solver_space(space_from_json(DOCUMENT))


def _recording(kind: Kind, seed: int) -> Recording:
    return synthetic_recording(SPACE, kind.value, DOCUMENT, seed, kind)


@pytest.mark.parametrize("kind", Kind)
def test_one_seed_is_one_device(kind: Kind) -> None:
    first, again, other = (_recording(kind, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.time_ms, again.time_ms, equal_nan=True)
    assert not np.array_equal(first.time_ms, other.time_ms, equal_nan=True)
    listed = candidates_of(SPACE).listed
    assert listed is not None and first.rows == len(listed)


@pytest.mark.parametrize("kind", Kind)
def test_few_configurations_are_near_the_best(kind: Kind) -> None:
    shares = [
        float(np.nanmean(found.time_ms <= found.best_ms / 0.95))
        for found in (_recording(kind, seed) for seed in range(8))
    ]
    assert 0 < np.median(shares) < 0.02


def test_kinds_differ() -> None:
    times = [np.nan_to_num(_recording(kind, 3).time_ms) for kind in Kind]
    ranks = [np.argsort(np.argsort(column)) for column in times]
    correlations = np.corrcoef(ranks) - np.eye(len(ranks))
    assert np.abs(correlations).max() < 0.95


def test_a_thinned_space_keeps_some_values_of_each_parameter() -> None:
    found = thinned(DOCUMENT, 200, 0)
    listed = candidates_of(solver_space(space_from_json(found))).listed
    assert listed is not None and len(listed) <= 200
    for name, values in found["parameters"].items():
        whole = DOCUMENT["parameters"][name]
        assert set(values) <= set(whole) and len(values) >= 2
    assert found == thinned(DOCUMENT, 200, 0) != thinned(DOCUMENT, 200, 1)
    assert thinned(DOCUMENT, 10**6, 0)["parameters"] == DOCUMENT["parameters"]


def test_published_spaces_with_every_kind_of_device_can_be_replayed() -> None:
    found = {r.name: r for r in invented_recordings(ROOT / "bench" / "spaces", 0)}
    assert set(found) == {f"{name}/{kind.value}" for name in SPACES for kind in Kind}
    recording = found["gemm/table"]
    assert Arena.of(recording).recording is recording
    assert not recording.memory_bytes.any()
