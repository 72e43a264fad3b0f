"""``nestmap solve --best``: candidates with their predicted times, and the bound."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mapper.cost.analytic import DeviceConstants
from nestmap.cli import app
from nestmap.tuning.calibration import SCHEMA
from tests.unit.rows_program import PINS as FEW_PINS
from tests.unit.rows_program import ROWS

TREE = str(Path(__file__).parents[3] / "examples" / "cc22_convolution_tree.json")
PINS = [argument for pin in FEW_PINS for argument in ("--pin", pin)]


def solve(*args: str) -> Result:
    return CliRunner().invoke(app, ["solve", "-", *args], input=ROWS)


def test_the_best_come_with_predictions_and_a_proof() -> None:
    found = json.loads(solve("--best", "2", *PINS, "--json").stdout)
    first, second = found["best"]
    assert first["predicted_ms"] <= second["predicted_ms"]
    assert found["bound_ms"] <= first["predicted_ms"]
    assert found["proved"]
    assert 0 <= found["gap"] <= 0.01
    # Sequential rows leave compute units idle.
    assert first["mapping"]["A"] != 0
    text = solve("--best", "2", *PINS).stdout
    assert "mapping 2, predicted" in text
    assert "none of the space is predicted below" in text


def test_constants_of_a_device_are_used(tmp_path: Path) -> None:
    free = DeviceConstants(1000.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    path = tmp_path / "device.json"
    path.write_text(json.dumps({"schema": SCHEMA, "constants": free.to_json()}))
    found = json.loads(solve("--best", "1", "--constants", str(path), *PINS, "--json").stdout)
    assert found["best"][0]["predicted_ms"] == pytest.approx(0.001)


@pytest.mark.parametrize(
    "options",
    [
        ["--best", "0"],
        ["--best", "1", "--count"],
        ["--best", "1", "--prefer", "A=W0"],
        ["--best", "1", "--mode", "paper"],
        ["--best", "1", "--stratify"],
        ["--constants", "device.json"],
    ],
)
def test_what_makes_no_sense_with_best_is_refused(options: list[str]) -> None:
    assert solve(*options).exit_code == 2


def test_a_bare_tree_has_no_predictions() -> None:
    result = CliRunner().invoke(app, ["solve", TREE, "--best", "1"])
    assert result.exit_code == 2
    assert "says nothing about what is computed" in result.stderr
