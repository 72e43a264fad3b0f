"""docs/schedules.md shows what its commands write and what its files hold; so does its picture."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mapper.ast_model.text_form import parse
from mapper.schedules.loop_pictures import loops_svg
from mapper.schedules.schedule import derived
from mapper.schedules.schedule_text import parse_schedule
from nestmap.cli import app

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "schedules.md"
BLOCK = re.compile(r"^```console\n\$ (nestmap .*)\n(?:.*\n)*?```$", re.MULTILINE)
#: A file that the page shows under a line that names it.
FILE = re.compile(r"^`(examples/\S+)`:(.*)\n\n```\n(?:.*\n)*?```$", re.MULTILINE)
WIDTH = 100


def answered(block: re.Match[str]) -> str:
    """The block with what its command writes; a pipe hands on what the one before wrote."""
    text: str | None = None
    for command in block.group(1).split(" | "):
        result = CliRunner().invoke(app, shlex.split(command)[1:], input=text)
        assert "Traceback" not in result.output
        text = result.output
    lines = [line.rstrip() for line in (text or "").splitlines()]
    shown = re.sub("\n{2,}", "\n\n", "\n".join(lines)).strip("\n")
    return f"```console\n$ {block.group(1)}\n{shown}\n```"


def with_file(block: re.Match[str]) -> str:
    content = (ROOT / block.group(1)).read_text(encoding="utf-8")
    return f"`{block.group(1)}`:{block.group(2)}\n\n```\n{content}```"


def test_the_page_on_schedules_is_true(
    golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    page, commands = BLOCK.subn(answered, PAGE.read_text(encoding="utf-8"))
    assert commands == page.count("```console") == 6
    page, files = FILE.subn(with_file, page)
    assert files == 2
    golden("../../docs/schedules.md", page)


def test_its_picture_is_of_the_programs_on_it(golden: Callable[[str, str], None]):
    before = parse((ROOT / "examples" / "product.txt").read_text())
    schedule = (ROOT / "examples" / "schedules" / "tiles.schedule").read_text()
    after = derived(before, parse_schedule(schedule))
    drawn = loops_svg([("before", before), ("after", after)])
    golden("../../docs/img/schedule-tiles.svg", drawn)
