"""What was measured in a variant that nestmap has no more is shown, and is begun no more."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from db.store import Store
from mapper.layer_spec import LayerSpec
from mapper.pipeline import subject_of_layer, subject_of_program
from mapper.variants import variant_program
from nestmap.cli import app
from nestmap.tuning.run import Budget
from nestmap.tuning.run import tune as measure
from nestmap.tuning.strategy import random_strategy
from worker.devices.null import NullDevice

TINY = LayerSpec(4, 6, 6, 8, name="tiny")
GONE = "tiled"


def invoke(*arguments: str, code: int = 0) -> dict[str, Any]:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout if code == 0 else result.stderr)


def problem_of(*arguments: str) -> dict[str, Any]:
    """The one thing that is wrong with a command."""
    (problem,) = invoke(*arguments, code=2)["error"]["problems"]
    return problem


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A layer in such a variant, whose program no variant of today has, and as it is written."""
    path = tmp_path_factory.mktemp("measured") / "store.sqlite3"
    written = variant_program(TINY, "high-level")
    gone = replace(
        subject_of_program(replace(written, name="tiled_convolution"), TINY.name), variant=GONE
    )
    with Store.open(path) as store:
        for subject in (gone, subject_of_layer(TINY, "high-level")):
            measure([subject], NullDevice(), store, budget=Budget(4), make=random_strategy())
    return path


@pytest.fixture
def db(measured: Path, tmp_path: Path) -> str:
    """A copy for each test: what was measured is most of the time."""
    return str(shutil.copy(measured, tmp_path))


@pytest.fixture
def layer(tmp_path: Path) -> str:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(TINY.to_json()))
    return str(path)


def test_its_study_shares_the_front_of_the_layer(db: str):
    found = invoke("front", "tiny", "--db", db)
    assert {study["variant"] for study in found["studies"]} == {GONE, "high-level"}
    number = next(s["id"] for s in found["studies"] if s["variant"] == GONE)
    own = invoke("front", "tiny", "--db", db, "--study", str(number))
    assert own["points"] and {point["variant"] for point in own["points"]} == {GONE}
    shown = CliRunner().invoke(app, ["front", "--db", db, "--study", str(number)])
    assert shown.exit_code == 0 and GONE in shown.stdout


def test_the_best_known_is_of_what_can_be_made_today(db: str, layer: str, tmp_path: Path):
    found = invoke("kernel", layer, "--best", "--device", "null", "--db", db)
    assert found["variant"] == "high-level"
    out = tmp_path / "records"
    invoke("front", layer, "--db", db, "--records-out", str(out))
    (kept,) = out.glob("*/*.json")
    assert {r["variant"] for r in json.loads(kept.read_text())["records"]} == {"high-level"}


def test_a_point_of_it_is_refused_with_the_variants_that_there_are(
    db: str, layer: str, tmp_path: Path
):
    points = invoke("front", "tiny", "--db", db, "--study", "1")["points"]
    entry = tmp_path / "point.json"
    entry.write_text(json.dumps(points[0]))
    problem = problem_of("kernel", layer, str(entry), "--device", "null")
    assert problem["found"] == GONE
    assert {"direct", "partial", "high-level"} <= {*problem["allowed"].split(", ")}


@pytest.mark.parametrize(
    "command",
    [
        ("tune", "{layer}", "--db", "{db}", "--candidates", "2"),
        ("solve", "{layer}", "--limit", "1"),
        ("constraints", "{layer}"),
        ("kernel", "{layer}", "--sample"),
    ],
    ids=lambda command: command[0],
)
def test_it_is_refused_with_the_variants_and_sketches_that_there_are(
    command: tuple[str, ...], db: str, layer: str
):
    asked = [part.format(layer=layer, db=db) for part in command]
    problem = problem_of(*asked, "--variant", GONE, "--device", "null")
    assert problem["found"] == GONE
    allowed = {*problem["allowed"].split(", ")}
    assert {"direct", "partial", "high-level", "tile-filter"} <= allowed


def test_a_search_begins_beside_it(db: str, layer: str):
    # What the layer has four candidates of already counts, and is gone on from.
    found = invoke("tune", layer, "--device", "null", "--db", db, "--candidates", "7")
    assert found["tried"] == 7 and found["refused"] == []
    studies = invoke("front", "tiny", "--db", db)["studies"]
    assert {study["variant"] for study in studies} == {GONE, "high-level", "direct", "partial"}
