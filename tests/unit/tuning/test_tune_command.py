"""``nestmap tune`` without a device: what it prints and writes, and its exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from db.store import Store
from mapper.cost.analytic import DeviceConstants
from mapper.cost.best_predicted import BestPredicted, Predicted
from mapper.host_plan import HostPlan
from mapper.pipeline import Subject, subject_of_layer
from mapper.solver.dive import diverse
from mapper.solver.space import Space
from nestmap.cli import app
from nestmap.tuning import guided, learned, predicted_start
from nestmap.tuning.calibration import SCHEMA
from nestmap.tuning.run import Budget
from nestmap.tuning.run import tune as measure
from nestmap.tuning.strategy import random_strategy
from tests.unit.tuning.fakes import TINY, ScriptedDevice
from worker.devices.null import NULL_PROFILE


@pytest.fixture
def layer(tmp_path: Path) -> str:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(TINY.to_json()))
    return str(path)


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        app(list(arguments))
    return int(stopped.value.code or 0)


def tune(layer: str, folder: Path, *more: str) -> int:
    return run(
        *("tune", layer, "--variant", "high-level", "--device", "null", "--candidates", "3"),
        *("--db", str(folder / "store.sqlite3"), *more),
    )


def test_json_has_the_front_and_the_files(
    layer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "out"
    assert tune(layer, tmp_path, "--json", "--out", str(out)) == 0
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert value["schema"] == "nestmap/tuning/1"
    assert value["tried"] == 3
    assert value["front"][0]["variant"] == "high-level"
    plan = HostPlan.from_json(json.loads((out / "tiny.plan.json").read_text()))
    assert (out / "tiny.cl").read_text() == plan.source
    assert plan.memory_bytes == value["front"][0]["memory_bytes"]


def test_second_run_prints_the_same_front(
    layer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    fronts: list[Any] = []
    for _ in range(2):
        assert tune(layer, tmp_path, "--json") == 0
        fronts.append(json.loads(capsys.readouterr().out)["front"])
    assert fronts[0] == fronts[1]


def test_table_is_printed(layer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert tune(layer, tmp_path) == 0
    printed = capsys.readouterr().out
    assert "time_ms" in printed and "memory_bytes" in printed and "high-level" in printed


def test_the_analytic_strategy_takes_constants_from_a_file(
    layer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "constants.json"
    analytic = ("--strategy", "analytic", "--constants", str(path), "--json")
    path.write_text(json.dumps({"schema": SCHEMA, "constants": DeviceConstants().to_json()}))
    assert tune(layer, tmp_path, *analytic) == 0
    assert json.loads(capsys.readouterr().out)["tried"] == 3
    for wrong in ("{", '{"schema": "x"}', json.dumps({"schema": SCHEMA, "constants": {"a": 1}})):
        path.write_text(wrong)
        assert tune(layer, tmp_path, *analytic) == 2
        assert "constants" in capsys.readouterr().err


def test_the_analytic_strategy_may_start_from_what_the_solver_finds(
    layer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    found: list[str] = []

    def best(subject: Subject, space: Space, *_: object) -> BestPredicted:
        found.append(subject.label)
        return BestPredicted((Predicted(next(diverse(space, 1, 77)), 1e-9),), 0.0, False, 1)

    monkeypatch.setattr(predicted_start, "best_of_space", best)
    assert tune(layer, tmp_path, "--strategy", "analytic", "--solver-start", "--json") == 0
    assert json.loads(capsys.readouterr().out)["tried"] == 3
    assert found == ["tiny"]
    assert tune(layer, tmp_path, "--solver-start") == 2
    assert "--solver-start" in capsys.readouterr().err


def test_what_other_layers_taught_is_used(
    layer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert tune(layer, tmp_path, "--transfer") == 2
    assert "too few" in capsys.readouterr().err
    other = tmp_path / "other.json"
    other.write_text(json.dumps(replace(TINY, height=9, name="other").to_json()))
    assert tune(str(other), tmp_path, "--candidates", "12") == 0
    capsys.readouterr()
    assert tune(layer, tmp_path, "--transfer", "--json") == 0
    printed = capsys.readouterr()
    assert "learned from other/high-level" in printed.err
    assert json.loads(printed.out)["tried"] == 3
    assert tune(layer, tmp_path, "--transfer", "--strategy", "random") == 2


def test_what_other_devices_took_for_the_layer_is_used(
    layer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    board = ScriptedDevice()
    board._profile = replace(NULL_PROFILE, name="board")  # pyright: ignore[reportPrivateUsage]
    with Store.open(tmp_path / "store.sqlite3") as store:
        subject = subject_of_layer(TINY, "high-level")
        measure([subject], board, store, budget=Budget(32), make=random_strategy())
    # Nothing is known of other layers, and nothing has to be.
    assert tune(layer, tmp_path, "--transfer", "--json") == 0
    printed = capsys.readouterr()
    assert "learned from 32 candidates of high-level on board" in printed.err
    assert json.loads(printed.out)["tried"] == 3
    assert tune(layer, tmp_path, "--seed", "1") == 0
    assert "learned from" not in capsys.readouterr().err


def test_other_layers_teach_unasked_where_there_is_enough_of_them(
    layer: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    other = tmp_path / "other.json"
    other.write_text(json.dumps(replace(TINY, height=9, name="other").to_json()))
    assert tune(str(other), tmp_path, "--candidates", "12") == 0
    assert tune(layer, tmp_path) == 0
    assert "learned from" not in capsys.readouterr().err
    taught: list[bool] = []

    class Watched(guided.GuidedStrategy):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            taught.append(options["learned"] is not None)
            super().__init__(*arguments, **options)

    monkeypatch.setattr(guided, "GuidedStrategy", Watched)
    monkeypatch.setattr(learned, "UNASKED_LEAST", 10)
    assert tune(layer, tmp_path, "--no-transfer", "--seed", "1") == 0
    assert tune(layer, tmp_path, "--strategy", "random", "--seed", "1") == 0
    assert "learned from" not in capsys.readouterr().err
    assert tune(layer, tmp_path, "--seed", "2") == 0
    assert "learned from other/high-level" in capsys.readouterr().err
    # Describing even so few would take most of such a run.
    monkeypatch.setattr(learned, "DESCRIBING_S", 3.0)
    assert tune(layer, tmp_path, "--seed", "3", "--seconds", "60") == 0
    assert "learned from" not in capsys.readouterr().err
    assert taught == [False, True, False]


def test_a_layer_that_the_usual_variants_do_not_do_is_tuned_in_one_that_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "depthwise.json"
    depthwise = replace(TINY, groups=TINY.channels, filters=TINY.channels, name="depthwise")
    path.write_text(json.dumps(depthwise.to_json()))
    found = run(
        *("tune", str(path), "--device", "null", "--candidates", "3", "--json"),
        *("--db", str(tmp_path / "store.sqlite3")),
    )
    assert found == 0
    assert json.loads(capsys.readouterr().out)["tried"] == 3


def test_bad_input(layer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run("tune", "vgg16/1") == 2
    assert tune(layer, tmp_path, "--variant", "none") == 2
    assert tune(layer, tmp_path, "--candidates", "0") == 2
    assert "error:" in capsys.readouterr().err


def test_folder_that_cannot_be_made(layer: str, tmp_path: Path):
    assert tune(layer, tmp_path, "--out", layer) == 2


def test_device_that_is_not_there(layer: str, tmp_path: Path):
    db = str(tmp_path / "store.sqlite3")
    assert run("tune", layer, "--device", "opencl:none/none", "--db", db) == 3


def test_store_that_cannot_be_written(layer: str, tmp_path: Path):
    bad = tmp_path / "not-a-store"
    bad.write_text("something else")
    assert run("tune", layer, "--device", "null", "--db", str(bad)) == 4


def test_only_what_the_user_s_constraints_leave_is_tried_and_counts(
    layer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert tune(layer, tmp_path, "--strategy", "random", "--json") == 0
    before = json.loads(capsys.readouterr().out)
    asked = ("--where", "code(row) == S", "--strategy", "random", "--json")
    assert tune(layer, tmp_path, *asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert {entry["mapping"]["row"] for entry in found["front"]} == {0}
    earlier = sum(entry["mapping"]["row"] == 0 for entry in before["front"])
    assert found["tried"] == 3
    with Store.open(tmp_path / "store.sqlite3") as store:
        (study,) = store.studies()
        stored = len(store.measurements(study))
    # All three of before but those that hold what is asked for were measured beside.
    assert stored >= 3 + earlier
    assert tune(layer, tmp_path, *asked) == 0
    assert json.loads(capsys.readouterr().out)["front"] == found["front"]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--where", "code(nothing) == S"), "--where"),
        (("--where", "code(row) =="), "--where"),
        (("--where", "code(row) == S", "--variant", "direct"), "one --variant"),
        (("--suits", "suits-nothing"), "suits"),
    ],
)
def test_constraints_that_say_nothing_of_what_is_tuned_are_refused(
    layer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], told: str
):
    assert tune(layer, tmp_path, *more) == 2
    assert told in capsys.readouterr().err
