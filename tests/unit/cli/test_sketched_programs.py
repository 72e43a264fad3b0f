"""A program tuned under its sketches, from the command line: results that are shown, printed and
checked again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mapper.ast_model.text_form import to_text
from nestmap.cli import app
from tests.unit.tuning.test_sketch_search import PROGRAM


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        app(list(arguments))
    return int(stopped.value.code or 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program, and a store with what was tuned of it."""
    path = tmp_path_factory.mktemp("sketched")
    (path / "product.txt").write_text(to_text(PROGRAM))
    assert run(
        *("tune", str(path / "product.txt"), "--device", "null", "--candidates", "6"),
        *("--variant", "blocks-column", "--variant", "tile-column", "--variant", "as-is"),
        *("--db", str(path / "store.sqlite3"), "--finalists", "0"),
    ) == 0  # fmt: skip
    return path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert run(*arguments) == 0
    return json.loads(capsys.readouterr().out)


def test_front_and_best_kernel_know_a_program_under_its_schedules(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, db = str(folder / "product.txt"), ("--db", str(folder / "store.sqlite3"))
    front = printed(capsys, "front", x, *db, "--json")
    assert {s["variant"] for s in front["studies"]} == {"blocks-column", "tile-column", ""}
    best = front["points"][0]
    kernel = printed(capsys, "kernel", x, "--best", "--device", "null", *db, "--json")
    assert kernel["record"]["variant"] == best["variant"]
    assert kernel["record"]["time_ms"] == best["time_ms"]
    assert best["candidate"] in kernel["record"]["from"]
    tile = printed(
        capsys, "kernel", x, "--best", "--variant", "tile-column", "--device", "null", *db, "--json"
    )
    assert tile["schedule"]["name"] == "tile-column"
    assert "variant: tile-column: a schedule of" in tile["source"]


def test_best_of_a_program_that_nobody_tuned_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, db = str(folder / "product.txt"), ("--db", str(folder / "store.sqlite3"))
    assert run("kernel", x, "--best", "--device", "pocl", *db) == 2
    said = capsys.readouterr().err
    assert "no valid mapping of product" in said and "nestmap tune" in said


def test_a_result_is_a_mapping_with_its_schedule(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = str(folder / "product.txt")
    result = printed(
        capsys, "tune", x, "--device", "null", "--candidates", "2", "--variant", "tile-column",
        "--db", str(tmp_path / "store.sqlite3"), "--json",
    )  # fmt: skip
    entry = result["front"][0]
    assert entry["variant"] == "tile-column"
    assert entry["schedule"]["schema"] == "nestmap/schedule/1"
    path = tmp_path / "result.json"
    path.write_text(json.dumps(result))
    again = printed(capsys, "kernel", x, str(path), "--device", "null", "--json")
    assert again["choices"]["mapping"] == entry["mapping"]
    assert again["schedule"] == entry["schedule"]
    checked = printed(capsys, "check", x, str(path), "--device", "null", "--json")
    assert checked["valid"]
    entry["schedule"]["steps"][0]["primitive"] = "tile"
    path.write_text(json.dumps(result))
    assert run("kernel", x, str(path), "--device", "null") == 2
    assert "no such primitive" in capsys.readouterr().err


def test_a_programs_variant_is_one_of_its_sketches(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = str(folder / "product.txt")
    found = printed(
        capsys, "kernel", x, "--sample", "--variant", "tile-column", "--device", "pocl", "--json"
    )
    assert found["variant"] == "tile-column"
    assert run("kernel", x, "--sample", "--variant", "nothing", "--device", "pocl") == 2
    assert "no sketch of this name" in capsys.readouterr().err
