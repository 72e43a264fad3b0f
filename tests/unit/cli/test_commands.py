"""``nestmap --help`` answers at once: it lists commands and loads none."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from nestmap.cli import app
from nestmap.cli.group import NestmapGroup

GROUP = get_command(app)
assert isinstance(GROUP, NestmapGroup)
BUILT_IN = GROUP.listed
LISTED = {**BUILT_IN, **GROUP.added()}


@pytest.mark.parametrize("name", LISTED)
def test_a_listed_command_is_called_as_it_calls_itself(name: str) -> None:
    listed = LISTED[name]
    assert listed.load(name).get_short_help_str(200) == listed.help
    assert listed.help in " ".join(CliRunner().invoke(app, ["--help"]).output.split())


def test_help_loads_none_of_what_is_slow() -> None:
    code = "import sys, nestmap.cli as c\ntry: c.app(['--help'])\nexcept SystemExit: pass\n"
    slow = {"bench", "numpy", "ortools", "sqlalchemy", "rich", "httpx"}
    code += f"print(sorted({slow!r} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"


def test_a_command_that_is_none_names_those_like_it() -> None:
    refused = CliRunner().invoke(app, ["slove"])
    assert refused.exit_code == 2
    assert "'solve'" in refused.stderr


def test_bench_is_a_command_of_another_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "bench" in LISTED and "bench" not in BUILT_IN
    monkeypatch.setattr("nestmap.cli._added", dict)
    assert "Campaigns" not in CliRunner().invoke(app, ["--help"]).output
    refused = CliRunner().invoke(app, ["bench", "gpu", "--tune", "7"])
    assert refused.exit_code == 2
    assert "not installed" in refused.stderr and "pip install -e bench" in refused.stderr
