"""How every command writes: results on stdout, notes, errors and progress on stderr."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterable, Mapping
from types import TracebackType

from rich.box import SIMPLE
from rich.console import Console
from rich.status import Status
from rich.table import Table

from mapper.errors import Problem

# Tables in files and pipes are not cut to the 80 columns of a terminal that is not there, unless
# COLUMNS says how wide they should be.
WIDTH_WITHOUT_TERMINAL = 200
PROGRESS_AFTER_S = 1.0
MAX_PROBLEMS_SHOWN = 20
MAX_FIELD_SHOWN = 1000


def write_json(value: object) -> None:
    """One JSON value as one line on stdout, at once: the reader may be waiting for it."""
    write_line(_json(value))


def write_line(text: str) -> None:
    """A line on stdout, at once; see :func:`write_text`."""
    sys.stdout.write(_shown(text) + "\n")
    sys.stdout.flush()


def write_text(text: str) -> None:
    """Text on stdout: as it is in files and pipes, without what would steer it on a terminal. A
    service or a file may hold names and sources that somebody else has made."""
    sys.stdout.write(_shown(text if text.endswith("\n") else text + "\n"))


def _shown(text: str) -> str:
    return text if text.isprintable() or not sys.stdout.isatty() else printable(text)


def _json(value: object) -> str:
    """JSON in one line: what is no printable character is escaped, ``\\x9b`` and surrogates too,
    which the standard lets stand."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def note(text: str) -> None:
    """Something beside the result, on stderr."""
    sys.stderr.write(f"note: {printable(text)}\n")


def printable(text: str) -> str:
    """The text without characters that would steer a terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def write_problems(
    kind: str,
    problems: Iterable[Problem],
    as_json: bool,
    more: Mapping[str, object] | None = None,
) -> None:
    """Errors on stderr: one ``error:`` line a problem (and commands that mend it, where there are
    several, a line each), or one JSON object with ``more`` in it."""
    listed = list(problems)
    if as_json:
        fields = ("path", "message", "found", "allowed", "remedy")
        shown = [{name: getattr(problem, name) for name in fields} for problem in listed]
        error = {"kind": kind, "problems": shown, **(more or {})}
        sys.stderr.write(_json({"error": error}) + "\n")
        return
    for problem in listed[:MAX_PROBLEMS_SHOWN]:
        shown = printable(str(problem))
        # Commands to paste stay whole, and on lines of their own.
        commands = f"\n{printable(problem.remedy)}" if "\n" in problem.remedy else ""
        text = shown.removesuffix(commands).replace("\n", " ")
        cut = text if len(text) <= MAX_FIELD_SHOWN else text[:MAX_FIELD_SHOWN] + "…"
        sys.stderr.write(f"error: {cut}{commands}\n")
    if len(listed) > MAX_PROBLEMS_SHOWN:
        sys.stderr.write(f"error: and {len(listed) - MAX_PROBLEMS_SHOWN} more problems\n")


def write_table(
    columns: Iterable[str],
    rows: Iterable[Iterable[object]],
    title: str = "",
    right: tuple[str, ...] = (),
) -> None:
    """A table on stdout; ``right`` names the columns of numbers."""
    table = Table(box=SIMPLE, title=printable(title) or None, title_justify="left", pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(printable(str(cell)) for cell in row))
    _console().print(table)


def _console() -> Console:
    stated = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    width = None if stated else WIDTH_WITHOUT_TERMINAL
    return Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False)


def mapping_fields(values: Mapping[str, object]) -> str:
    """``theta=5, rho=1`` for one line of text."""
    return ", ".join(f"{name}={value}" for name, value in values.items())


class Progress:
    """A line on the terminal's stderr while something takes over a second.

    Without a terminal nothing is shown. Results that move on the same screen say enough: with
    the first :meth:`update` the line goes away then.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._status: Status | None = None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            self._timer = threading.Timer(PROGRESS_AFTER_S, self._show)
            self._timer.daemon = True
            self._timer.start()
        return self

    def _show(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._status = Console(file=sys.stderr, markup=False).status(self._what)
                self._status.start()

    def update(self, count: int) -> None:
        """Say how many there are so far."""
        if self._timer is None:
            return
        if sys.stdout.isatty():
            self.stop()
            return
        with self._lock:
            if self._status is not None:
                self._status.update(f"{self._what}: {count}")

    def stop(self) -> None:
        """Take the line away for good."""
        with self._lock:
            timer, self._timer = self._timer, None
            status, self._status = self._status, None
        if timer is not None:
            timer.cancel()
        if status is not None:
            status.stop()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
