"""Kernel sources with highlighting, and what is different between two of them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers.c_cpp import CLexer
from pygments.token import Keyword, Name

#: Longer sources are shown without colours.
MOST_HIGHLIGHTED = 500_000
#: Lines that are compared; difflib's time grows with their product.
MOST_COMPARED_LINES = 6_000
MOST_ROWS = 1_000
CONTEXT_LINES = 3
#: Prefix of the classes that colour a source.
CLASS_PREFIX = "hl-"

_QUALIFIERS = re.compile(r"(__)?(kernel|global|local|constant|private|read_only|write_only)")
_VECTORS = re.compile(r"(half|float|double|u?(char|short|int|long))(2|3|4|8|16)?")


class OpenClLexer(CLexer):
    """C with the qualifiers and vector types of OpenCL."""

    name = "OpenCL C"
    aliases: tuple[str, ...] = ()
    filenames: tuple[str, ...] = ()

    def get_tokens_unprocessed(
        self, text: str, stack: Iterable[str] = ("root",)
    ) -> Generator[tuple[int, Any, str], Any, None]:
        """C's tokens; names that OpenCL gives a meaning get it."""
        for index, token, value in super().get_tokens_unprocessed(text, stack):
            if token in Name:
                if _QUALIFIERS.fullmatch(value):
                    token = Keyword
                elif _VECTORS.fullmatch(value):
                    token = Keyword.Type
                elif value.startswith("get_") or value == "barrier":
                    token = Name.Builtin
            yield index, token, value


def highlighted_lines(source: str) -> tuple[Markup, ...]:
    """The lines of a source as HTML, coloured by classes; without line ends."""
    if len(source) > MOST_HIGHLIGHTED:
        return tuple(Markup.escape(line) for line in source.splitlines())
    lexer = OpenClLexer(stripnl=False, ensurenl=False)
    text = highlight(source, lexer, HtmlFormatter(nowrap=True, classprefix=CLASS_PREFIX))
    # Pygments has escaped the source.
    lines = [Markup(line) for line in text.split("\n")]
    return tuple(lines[:-1] if lines and not lines[-1] else lines)


@dataclass(frozen=True, slots=True)
class DiffRow:
    """A line of a comparison: ``kind`` is ``same``, ``removed``, ``added`` or ``gap``, of which
    ``text`` says how many lines were left out. Numbers count from 1."""

    kind: str
    before: int | None
    after: int | None
    text: str


@dataclass(frozen=True, slots=True)
class SourceDiff:
    """What changed from one source to another; ``left_out`` rows are not shown, and
    ``compared`` is False where the sources are too long."""

    rows: tuple[DiffRow, ...]
    added: int
    removed: int
    left_out: int = 0
    compared: bool = True

    @property
    def is_same(self) -> bool:
        """Whether both sources are equal."""
        return self.compared and not self.added and not self.removed


def source_diff(before: str, after: str) -> SourceDiff:
    """Changed lines with three around them."""
    first, second = before.splitlines(), after.splitlines()
    if max(len(first), len(second)) > MOST_COMPARED_LINES:
        return SourceDiff((), 0, 0, compared=first == second)
    matcher = difflib.SequenceMatcher(None, first, second)
    rows: list[DiffRow] = []
    added = removed = 0
    shown_to = 0
    for group in matcher.get_grouped_opcodes(CONTEXT_LINES):
        if group[0][1] > shown_to:
            rows.append(_gap(group[0][1] - shown_to))
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                rows += (DiffRow("same", i + 1, j1 + i - i1 + 1, first[i]) for i in range(i1, i2))
                continue
            rows += (DiffRow("removed", i + 1, None, first[i]) for i in range(i1, i2))
            rows += (DiffRow("added", None, j + 1, second[j]) for j in range(j1, j2))
            removed += i2 - i1
            added += j2 - j1
        shown_to = group[-1][2]
    if rows and len(first) > shown_to:
        rows.append(_gap(len(first) - shown_to))
    left_out = max(0, len(rows) - MOST_ROWS)
    return SourceDiff(tuple(rows[:MOST_ROWS]), added, removed, left_out)


def _gap(lines: int) -> DiffRow:
    return DiffRow("gap", None, None, f"{lines} equal line{'s' * (lines != 1)}")
