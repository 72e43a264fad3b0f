"""``kernel --best`` knows the shipped records, the user's store and folder alike."""

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
from mapper.pipeline import subject_of_layer
from mapper.tuning_records import TuningRecord, shipped_records
from nestmap.cli import app, recorded
from nestmap.tuning.record_files import own_records, write_records
from nestmap.tuning.run import Budget
from nestmap.tuning.run import tune as measure
from nestmap.tuning.store_records import of_folder, own_starts, records_of_store
from nestmap.tuning.strategy import random_strategy
from worker.devices.null import NullDevice

TINY = LayerSpec(4, 6, 6, 8, name="tiny")
FACTS = {"device.name": "null", "device.kind": "null"}


def invoke(*arguments: str, code: int = 0) -> tuple[dict[str, Any], str]:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout if code == 0 else result.stderr), result.stderr


def file_of(folder: Path, layer: LayerSpec) -> str:
    path = folder / f"{layer.name}.json"
    path.write_text(json.dumps(layer.to_json()))
    return str(path)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("measured") / "store.sqlite3"
    with Store.open(path) as store:
        for variant in ("direct", "high-level"):
            subject = subject_of_layer(TINY, variant)
            measure([subject], NullDevice(), store, budget=Budget(4), make=random_strategy())
    return path


@pytest.fixture
def db(measured: Path, tmp_path: Path) -> Path:
    """A copy for each test: what was measured is most of the time."""
    return Path(shutil.copy(measured, tmp_path))


def test_what_tune_found_is_given_back(db: Path, tmp_path: Path):
    path = file_of(tmp_path, replace(TINY, name="other-name"))
    front, _ = invoke("front", path, "--db", str(db))
    best = front["points"][0]
    found, said = invoke("kernel", path, "--best", "--device", "null", "--db", str(db))
    assert found["record"]["time_ms"] == best["time_ms"]
    assert found["variant"] == best["variant"]
    place = f"study {best['study']}, candidate {best['candidate']}"
    assert place in found["record"]["from"] and place in said


def test_the_store_in_the_folder_is_read_without_being_named(
    db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = file_of(tmp_path, TINY)
    monkeypatch.chdir(tmp_path)
    db.rename(tmp_path / "nestmap.sqlite3")
    assert "study" in invoke("kernel", path, "--best", "--device", "null")[0]["record"]["from"]


def test_another_device_is_no_answer_and_is_named(db: Path, tmp_path: Path):
    error, _ = invoke("kernel", file_of(tmp_path, TINY), "--best", "--db", str(db), code=2)
    (problem,) = error["error"]["problems"]
    assert "null has one" in problem["found"]
    assert problem["remedy"].startswith("nestmap tune ")


def test_records_are_an_export_of_the_store(db: Path, tmp_path: Path):
    path, folder = file_of(tmp_path, TINY), tmp_path / "records"
    invoke("front", path, "--db", str(db), "--records-out", str(folder))
    kept = own_records(folder, "null")
    assert {record.variant for record in kept} <= {"direct", "high-level"} and kept
    found, _ = invoke("kernel", path, "--best", "--device", "null", "--records", str(folder))
    assert str(folder) in found["record"]["from"]
    with Store.open(db) as store:
        stored = records_of_store(store, TINY, of_folder("null"))
        assert {r.source_hash for r in kept} <= {r.source_hash for r in stored}
        assert not records_of_store(store, TINY, of_folder("h200"))
        assert len(own_starts(store, FACTS, TINY, folder)) == len(kept) + len(stored)
    refused, _ = invoke("kernel", path, "--records", str(folder), code=2)
    assert "--best" in json.dumps(refused)


def test_a_search_starts_from_what_is_known(db: Path, tmp_path: Path):
    folder, path = tmp_path / "records", file_of(tmp_path, TINY)
    invoke("front", path, "--db", str(db), "--records-out", str(folder))
    fastest = min(own_records(folder, "null"), key=lambda record: record.time_ms)
    more = ("--db", str(tmp_path / "fresh.sqlite3"), "--candidates", "1", "--records", str(folder))
    tuned, _ = invoke("tune", path, "--device", "null", "--variant", fastest.variant, *more)
    assert tuned["front"][0]["time_ms"] == fastest.time_ms


def other_spelling(record: TuningRecord) -> LayerSpec | None:
    """A 1x1 layer as one row of pixels."""
    layer = record.layer
    padded = layer.padded_height != layer.height or layer.padded_width != layer.width
    if (layer.kernel_height, layer.kernel_width, layer.stride_y, layer.stride_x) != (1, 1, 1, 1):
        return None
    if padded or layer.height == 1:
        return None
    return replace(layer, height=1, width=layer.height * layer.width, name="row")


def test_the_same_layer_in_another_spelling_is_served(tmp_path: Path):
    spelled = next(found for r in shipped_records("h200") if (found := other_spelling(r)))
    path = file_of(tmp_path, spelled)
    found, said = invoke("kernel", path, "--best", "--device", "h200")
    assert "the shipped records" in found["record"]["from"]
    assert "arrays are" not in said


def test_own_figures_replace_shipped_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first = shipped_records("h200")[0]
    second = next(r for r in shipped_records("h200") if r.variant != first.variant)
    # Both as if of one layer: only figures and places are looked at.
    shipped = [replace(first, time_ms=1.0), replace(second, layer=first.layer, time_ms=2.0)]
    again = replace(shipped[0], time_ms=3.0)
    known = [recorded.Known(r, "shipped", False) for r in shipped]
    known.append(recorded.Known(again, "own", True))
    matching = recorded._matching(known, first.layer, "")  # pyright: ignore[reportPrivateUsage]
    assert [one.record.time_ms for one in matching] == [2.0, 3.0]
    # Times of two processors say nothing of each other.
    matching = recorded._matching(known, first.layer, "haswell")  # pyright: ignore[reportPrivateUsage]
    assert [one.record.time_ms for one in matching] == [3.0]


def test_a_folder_takes_records_of_several_devices(tmp_path: Path):
    fastest = min(shipped_records("h200"), key=lambda r: r.time_ms)
    write_records(tmp_path / "records", "some-gpu", [replace(fastest, device="Some GPU")])
    path = file_of(tmp_path, replace(fastest.layer, name="mine"))
    error, _ = invoke(
        "kernel", path, "--best", "--device", "mali-g72", "--records", str(tmp_path / "records"),
        code=2,
    )  # fmt: skip
    assert "h200, some-gpu has one" in error["error"]["problems"][0]["found"]
