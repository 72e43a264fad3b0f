"""``nestmap bench completeness``: its file, its tables, its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bench.proofs.completeness import campaign
from nestmap.cli import app

pytestmark = pytest.mark.kernels


def run(*args: str) -> Result:
    return CliRunner().invoke(app, ["bench", "completeness", *args])


def line_alone(out: Path, *more: str) -> Result:
    return run("--programs", "line", "--random", "0", "--device-checks", "1", "--out", str(out),
               *more)  # fmt: skip


@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
def test_the_file_holds_what_is_printed(tmp_path: Path) -> None:
    out = tmp_path / "new" / "result.json"
    result = line_alone(out, "--json")
    assert result.exit_code == 0, result.output
    value = json.loads(out.read_text())
    assert value == json.loads(result.stdout)
    assert value["failures"] == 0
    assert value["assignments"] == value["programs"][0]["assignments"] == 96
    alone = value["rules"]["thread-dimensionality"]["alone"]
    assert alone["right"] == value["lost"][0]["kernels"] == 3
    assert value["lost_with_all_switches"] == []


@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
def test_an_accepted_kernel_that_fails_is_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "PREFERENCES", frozenset({"thread-dimensionality"}))
    result = line_alone(tmp_path / "result.json")
    assert result.exit_code == 1
    assert "same-value-race" in result.stderr
    assert "| thread-dimensionality |" not in result.stdout


def test_an_unknown_program_is_named(tmp_path: Path) -> None:
    result = run("--programs", "nowhere", "--out", str(tmp_path / "x.json"))
    assert result.exit_code == 2
    assert "nowhere" in result.stderr and "tile local reversed" in result.stderr
