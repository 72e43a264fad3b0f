"""Guesses and models are judged on recorded layers that they were not fitted to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bench.searches.campaign import own_trace
from bench.searches.guesses import RecordedLayer, rankings, rankings_json, table
from bench.searches.layer_recording import record_layer
from bench.searches.recording import Recording, read_recording, write_recording
from bench.searches.replay import Arena
from mapper.cost.analytic import DeviceConstants
from mapper.errors import InputError
from nestmap.cli import app
from tests.unit.tuning.fakes import TINY, ScriptedDevice

WIDE = replace(TINY, height=12, width=12, name="wide")
HIDDEN = DeviceConstants(launches=2000.0, waves=900.0, operations=3.0, global_bytes=0.7)


def _timed_by_the_model(recording: Recording) -> Recording:
    layer = RecordedLayer.of(recording)
    times = layer.predicted(HIDDEN)
    times[3] = np.nan
    return replace(recording, time_ms=times, failures={3: "timeout"})


@pytest.fixture(scope="module")
def recordings() -> list[Recording]:
    """Two layers on a device that keeps to the analytic model, whose constants nobody knows."""
    found = [
        record_layer(layer, "high-level", ScriptedDevice(), points=30, seconds=1e6)
        for layer in (TINY, WIDE)
    ]
    return [_timed_by_the_model(recording) for recording in found]


@pytest.fixture(scope="module")
def layers(recordings: list[Recording]) -> list[RecordedLayer]:
    return [RecordedLayer.of(recording) for recording in recordings]


def test_a_model_fitted_to_the_other_layer_knows_this_one(layers: list[RecordedLayer]) -> None:
    found = rankings(layers)
    for row in found.values():
        assert row["analytic, fitted"] == pytest.approx(1.0, abs=0.02)
        assert row["learned"] > 0.3
        # One device only: all others are those of its own.
        assert row["learned, all"] == row["learned"]
    lines = table(found, layers).splitlines()
    assert len(lines) == 5 and lines[-1].startswith("| median | | |")


def test_alone_a_layer_has_nothing_to_learn_from(layers: list[RecordedLayer]) -> None:
    found = rankings(layers[:1])
    row = rankings_json(found)["tiny/high-level"]
    assert row["learned"] is row["analytic, fitted"] is row["learned, own"] is None
    assert row["analytic"] is not None
    assert "–" in table(found, layers[:1])


def test_a_recording_of_no_layer_is_refused(recordings: list[Recording]) -> None:
    with pytest.raises(InputError, match="no recording of a layer"):
        RecordedLayer.of(replace(recordings[0], document={"schema": "nestmap/space/1"}))


def test_the_analytic_search_goes_by_the_prediction(recordings: list[Recording]) -> None:
    recording = recordings[0]
    arena = Arena.of(recording)
    rows = own_trace(arena, "analytic", 0, 10).rows
    described = arena.describe_analytically(recording.values)
    assert described.guess is not None
    # The front of bytes and prediction is asked for first, then by the prediction.
    assert described.guess[list(rows)].mean() < np.median(described.guess)
    assert rows != own_trace(arena, "guess", 0, 10).rows


def test_the_command_prints_rank_correlations(recordings: list[Recording], tmp_path: Path) -> None:
    arguments = ["bench", "search", "guesses", "--json"]
    for recording in recordings:
        path = tmp_path / f"{recording.rows}-{recording.name.replace('/', '-')}.json.gz"
        write_recording(path, recording)
        arguments += ["--recordings", str(path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    value = json.loads(result.stdout)
    assert set(value) == {"tiny/high-level", "wide/high-level"}
    assert all(row["analytic, fitted"] > 0.9 for row in value.values())


def test_the_command_describes_recordings_anew(recordings: list[Recording], tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.json.gz" for number in range(2)]
    for path, recording in zip(paths, recordings, strict=True):
        write_recording(path, replace(recording, document={**recording.document, "known": []}))
    arguments = ["bench", "search", "describe", *map(str, paths), "--jobs", "2"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    for path, recording in zip(paths, recordings, strict=True):
        found = read_recording(path)
        assert found.document["known"] == recording.document["known"]
        assert np.allclose(found.time_ms, recording.time_ms, rtol=1e-6, equal_nan=True)
    missing = CliRunner().invoke(app, ["bench", "search", "describe", str(tmp_path / "no.gz")])
    assert missing.exit_code == 2
