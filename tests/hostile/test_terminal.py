"""What somebody else has named does not steer the terminal of whoever looks at it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable

import pytest

from mapper.errors import Problem
from nestmap.cli.output import write_json, write_line, write_problems, write_text

HOSTILE = "a\x1b]0;owned\x07\x9b2J\u202eb\r\u2028\U000e0001\tc"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("write", [write_text, write_line])
def test_text_on_a_terminal_holds_nothing_that_steers_it(
    write: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    write(f"{HOSTILE}\nnext")
    said = terminal.getvalue()
    assert said.startswith("a\\x1b]0;owned\\x07\\x9b2J") and said.endswith("\tc\nnext\n")
    assert said.replace("\n", "").replace("\t", "").isprintable()


@pytest.mark.parametrize("write", [write_text, write_line])
def test_text_in_files_is_as_it_is(
    write: Callable[[str], None], capsys: pytest.CaptureFixture[str]
):
    write(HOSTILE)
    assert capsys.readouterr().out == f"{HOSTILE}\n"


def test_json_escapes_what_steers_terminals_and_reads_back_as_it_was(
    capsys: pytest.CaptureFixture[str],
):
    value = {HOSTILE: [HOSTILE, "half \ud800", "é 日本"]}
    write_json(value)
    write_problems("input", [Problem("x", HOSTILE, "\ud800")], as_json=True)
    said = capsys.readouterr()
    for text in (said.out, said.err):
        assert text[:-1].isprintable() and text[-1] == "\n"
    assert "é 日本" in said.out
    assert json.loads(said.out) == value
    assert json.loads(said.err)["error"]["problems"][0]["message"] == HOSTILE
