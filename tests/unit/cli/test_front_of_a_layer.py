"""``nestmap front`` of a layer shows all its variants, whatever the layer was called."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from db.store import Store
from mapper.layer_spec import LayerSpec
from mapper.pipeline import subject_of_layer
from nestmap.cli import app
from nestmap.tuning.run import Budget
from nestmap.tuning.run import tune as measure
from nestmap.tuning.strategy import random_strategy
from worker.devices.null import NullDevice

TINY = LayerSpec(4, 6, 6, 8, name="tiny")
VARIANTS = ("direct", "high-level")


def front(*arguments: str, code: int = 0) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["front", *arguments, "--json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if code == 0 else json.loads(result.stderr)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("measured") / "store.sqlite3"
    with Store.open(path) as store:
        for variant in VARIANTS:
            subject = subject_of_layer(TINY, variant)
            measure([subject], NullDevice(), store, budget=Budget(4), make=random_strategy())
        other = subject_of_layer(replace(TINY, channels=8, name="other"), "high-level")
        measure([other], NullDevice(), store, budget=Budget(2), make=random_strategy())
    return str(path)


@pytest.mark.parametrize("name", ["tiny", "called-otherwise"])
def test_a_layer_file_shows_all_variants(db: str, tmp_path: Path, name: str):
    path = tmp_path / "L.json"
    path.write_text(json.dumps(replace(TINY, name=name).to_json()))
    found = front(str(path), "--db", db)
    assert {study["variant"] for study in found["studies"]} == set(VARIANTS)
    assert found == front("tiny", "--db", db)


@pytest.mark.parametrize("device", ["null", "nothing"])
def test_devices_have_the_names_of_all_commands(db: str, device: str):
    found = front("tiny", "--db", db, "--device", device, code=0 if device == "null" else 2)
    assert ("error" in found) == (device != "null")


def test_a_point_is_a_mapping_for_kernel(db: str, tmp_path: Path):
    layer = tmp_path / "L.json"
    layer.write_text(json.dumps(TINY.to_json()))
    points = front(str(layer), "--db", db)["points"]
    assert points
    for point in points:
        path = tmp_path / "point.json"
        path.write_text(json.dumps(point))
        result = CliRunner().invoke(
            app, ["kernel", str(layer), str(path), "--device", "null", "--json"]
        )
        assert result.exit_code == 0, result.output
        plan = json.loads(result.stdout)
        assert plan["variant"] == point["variant"]
        assert plan["memory_bytes"] == point["memory_bytes"]
        assert plan["choices"]["mapping"] == point["mapping"]
