"""``nestmap bench soundness``: its answer, its exit codes, and what it leaves in files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bench.proofs.soundness import judges
from bench.proofs.soundness.cases import Case
from nestmap.cli import app
from nestmap.cli.exit_codes import ExitCode
from tests.bench.proofs.soundness.judged import FakeJudge, has_barrier


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs the command with a made-up judge and its files in ``tmp_path``."""

    def run(*arguments: str, wrong: Callable[[Case], bool] = lambda case: False) -> Result:
        monkeypatch.setattr(judges, "OclgrindJudge", lambda: FakeJudge(wrong))
        files = ("--out", str(tmp_path / "result.json"), "--failures", str(tmp_path / "failed"))
        command = ["bench", "soundness", "--judge", "oclgrind", *files, *arguments]
        return CliRunner().invoke(app, command)

    return run


def test_a_clean_campaign_says_what_it_covered(bench: Callable[..., Result], tmp_path: Path):
    result = bench("--cases", "5", "--seed", "2")
    assert result.exit_code == ExitCode.OK, result.output
    assert "| depth of maps |" in result.stdout
    assert "5 right" in result.stdout
    value = json.loads((tmp_path / "result.json").read_text())
    assert value["schema"] == "nestmap/bench-soundness/1"
    assert value["judges"] == ["oclgrind"]
    assert value["result"]["outcomes"] == {"right": 5}
    assert not (tmp_path / "failed").exists()


def test_a_failure_has_an_exit_code_and_a_folder(bench: Callable[..., Result], tmp_path: Path):
    result = bench("--cases", "8", "--seed", "2", "--no-shrink", "--json", wrong=has_barrier)
    assert result.exit_code == ExitCode.NEGATIVE, result.output
    failures = json.loads(result.stdout)["result"]["failures"]
    folders = list((tmp_path / "failed").iterdir())
    assert 0 < len(folders) <= len(failures)
    for folder in folders:
        assert {file.suffix for file in folder.iterdir()} == {".json", ".txt", ".py"}
        assert str(folder) in result.stderr


def test_the_same_command_goes_on_and_another_seed_does_not(bench: Callable[..., Result]):
    assert bench("--cases", "3", "--seed", "2").exit_code == ExitCode.OK
    result = bench("--cases", "4", "--seed", "2", "--json")
    assert json.loads(result.stdout)["result"]["cases"] == 4
    result = bench("--cases", "4", "--seed", "3")
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "another seed" in result.stderr


def test_an_unknown_judge_is_refused(bench: Callable[..., Result]):
    result = bench("--judge", "guess")
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "oclgrind, pocl" in result.output
