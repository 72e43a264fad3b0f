"""``nestmap bench search``: replays that go on where a file ends, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.searches.layer_recording import record_layer
from bench.searches.recording import write_recording
from bench.searches.threads import ONE_THREAD
from nestmap.cli import app
from tests.unit.tuning.fakes import TINY, ScriptedDevice, timed

RUNNER = CliRunner()


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command sets these: not for the tests that come after."""
    for name, threads in ONE_THREAD.items():
        monkeypatch.setenv(name, threads)


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    path = tmp_path / "tiny.json.gz"
    device = ScriptedDevice(lambda number, candidate: timed(1.0 + number))
    write_recording(path, record_layer(TINY, "high-level", device, points=12, seconds=1e6))
    return [
        "bench", "search", "--recordings", str(path), "--evaluations", "8",
        "--peers-python", "/nowhere/python", "--out", str(tmp_path / "runs.json"),
    ]  # fmt: skip


def _runs(arguments: list[str], *more: str) -> list[dict[str, Any]]:
    result = RUNNER.invoke(app, [*arguments, *more, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["runs"]


def test_runs_are_kept_and_the_missing_ones_added(arguments: list[str]) -> None:
    only = ("--searches", "nestmap:random")
    first = _runs(arguments, *only, "--seeds", "2")
    both = _runs(arguments, *only, "--searches", "nestmap:evolution", "--seeds", "3")
    assert [(r["search"], r["seed"]) for r in first] == [("random", 0), ("random", 1)]
    assert [r for r in both if r["search"] == "random" and r["seed"] < 2] == first
    assert len(both) == 6
    assert {r["evaluations"] for r in both} == {8}


def test_what_a_file_has_is_drawn_without_another_run(arguments: list[str], tmp_path: Path) -> None:
    _runs(arguments, "--searches", "nestmap:random", "--seeds", "2")
    out = tmp_path / "runs.json"
    before = out.read_bytes()
    result = RUNNER.invoke(app, [*arguments, "--seeds", "0", "--plots", str(tmp_path / "plots")])
    assert result.exit_code == 0, result.output
    assert "left out" not in result.stderr, "nobody is asked for"
    assert (
        "nestmap: random" in (tmp_path / "plots" / "search-tiny-high-level-seconds.svg").read_text()
    )
    assert out.read_bytes() == before
    nothing = RUNNER.invoke(app, [*arguments, "--seeds", "0", "--out", str(tmp_path / "none.json")])
    assert nothing.exit_code == 2
    assert "no runs" in nothing.stderr
    assert not (tmp_path / "none.json").exists()


def test_several_processes_make_the_same_runs_as_one(arguments: list[str], tmp_path: Path) -> None:
    only = ("--searches", "nestmap:random", "--searches", "nestmap:evolution", "--seeds", "2")
    alone = _runs(arguments, *only)
    together = _runs([*arguments, "--out", str(tmp_path / "jobs.json")], *only, "--jobs", "2")

    def found(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        kept = [{**run, "seconds": 0.0} for run in runs]
        return sorted(kept, key=lambda run: (run["search"], run["seed"]))

    assert found(together) == found(alone)


def test_projects_that_are_not_installed_are_left_out_and_said(arguments: list[str]) -> None:
    result = RUNNER.invoke(
        app, [*arguments, "--searches", "nestmap:random", "--searches", "optuna", "--seeds", "1"]
    )
    assert result.exit_code == 0
    assert "optuna left out" in result.stderr
    assert "| nestmap: random |" in result.stdout
    assert "hypervolume" in result.stdout


def test_unknown_searches_are_refused(arguments: list[str]) -> None:
    for name, allowed in (("luck", "kernel-tuner"), ("nestmap:luck", "model-guided")):
        result = RUNNER.invoke(app, [*arguments, "--searches", name])
        assert result.exit_code == 2
        assert "luck" in result.stderr and allowed in result.stderr
