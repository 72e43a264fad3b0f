"""docs/explain.md shows what the commands write, and nothing else."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nestmap.cli import app

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "explain.md"
BLOCK = re.compile(r"^```console\n\$ nestmap (.*)\n(?:.*\n)*?```$", re.MULTILINE)
WIDTH = 100


def answered(block: re.Match[str]) -> str:
    result = CliRunner().invoke(app, shlex.split(block.group(1)))
    assert "Traceback" not in result.output
    lines = [line.rstrip() for line in result.output.splitlines()]
    shown = re.sub("\n{2,}", "\n\n", "\n".join(lines)).strip("\n")
    return f"```console\n$ nestmap {block.group(1)}\n{shown}\n```"


def test_the_page_on_explanations_is_true(
    golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    page, count = BLOCK.subn(answered, PAGE.read_text(encoding="utf-8"))
    assert count == page.count("```console")
    golden("../../docs/explain.md", page)
