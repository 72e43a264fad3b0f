"""Calibration: constants found again from a device that keeps to the model; how it is judged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from db.store import Store
from mapper.cost.analytic import DeviceConstants
from mapper.errors import InputError
from mapper.layer_spec import LayerSpec
from mapper.measurement import CompileError, Outcome
from nestmap.tuning import calibration
from nestmap.tuning.calibration import SCHEMA, calibrate
from nestmap.tuning.events import CandidateMeasured, Event
from tests.unit.tuning.fakes import TINY, ScriptedDevice, timed

WIDE = replace(TINY, height=12, width=12, name="wide")
LAYERS: tuple[LayerSpec, ...] = (TINY, WIDE)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store.sqlite3") as opened:
        yield opened


def test_constants_and_their_judgement_can_be_read_back(store: Store) -> None:
    events: list[Event] = []
    found = calibrate(
        ScriptedDevice(),
        store,
        layers=LAYERS,
        variants=("high-level",),
        candidates=12,
        seconds=1e6,
        listener=events.append,
    )
    value = json.loads(json.dumps(found.to_json()))
    assert value["schema"] == SCHEMA
    assert DeviceConstants.from_json(value["constants"]) == found.constants
    assert [(r.subject, r.fitted, r.held_out) for r in found.rankings] == [
        ("tiny/high-level", 8, 4), ("wide/high-level", 8, 4),
    ]  # fmt: skip
    assert all(-1 <= r.correlation <= 1 for r in found.rankings)
    assert sum(isinstance(event, CandidateMeasured) for event in events) == 24


def test_what_is_stored_is_not_measured_again_and_gives_the_same(store: Store) -> None:
    def found() -> tuple[int, object]:
        device = ScriptedDevice()
        value = calibrate(
            device, store, layers=LAYERS, variants=("high-level",), candidates=9, seconds=1e6
        )
        return len(device.measured), value.to_json()

    first, second = found(), found()
    assert (first[0], second[0]) == (18, 0)
    assert first[1] == second[1]


def test_a_device_that_keeps_to_the_model_is_predicted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times made of the counts: held-out candidates must come out in their order."""
    hidden = DeviceConstants(launches=2000.0, waves=900.0, operations=3.0, global_bytes=0.7)
    measured = calibration._measured

    def by_the_model(*arguments: object) -> object:
        rows = measured(*arguments)  # pyright: ignore[reportArgumentType]
        return [(counts, calibration.predicted_ms(counts, hidden)) for counts, _ in rows]

    monkeypatch.setattr(calibration, "_measured", by_the_model)
    found = calibrate(
        ScriptedDevice(), store, layers=LAYERS, variants=("high-level",), candidates=21,
        seconds=1e6,
    )  # fmt: skip
    assert found.median_error < 0.05
    assert found.correlation > 0.95


def test_too_few_candidates_are_refused(store: Store) -> None:
    def fails(number: int, candidate: str) -> Outcome:
        return timed(1.0) if number % 4 == 0 else CompileError("no")

    with pytest.raises(InputError, match="too few"):
        calibrate(
            ScriptedDevice(fails), store, layers=(TINY,), variants=("high-level",), candidates=12
        )


def test_the_command_prints_and_writes_constants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nestmap.cli import app

    monkeypatch.setattr(calibration, "calibration_layers", lambda: (TINY,))
    monkeypatch.setattr(calibration, "VARIANTS", ("high-level",))
    out = tmp_path / "constants.json"
    arguments = ["devices", "calibrate", "--device", "null", "--candidates", "12"]
    arguments += ["--db", str(tmp_path / "store.sqlite3"), "--out", str(out)]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(out.read_text()) == json.loads(result.stdout)
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0 and "rank correlation" in shown.stdout
