"""The command group: turns every error into one clear message and an exit code."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from mapper.errors import NestmapError, Problem
from nestmap.answers import EmptySpaceError
from nestmap.cli.exit_codes import ExitCode, exit_code_of, kind_of_error
from nestmap.cli.explanations import write_conflict
from nestmap.cli.output import write_problems

DEBUG_VARIABLE = "NESTMAP_DEBUG"


class NestmapGroup(TyperGroup):
    """A group whose commands raise errors and never print them."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; a reader that went away (``| head``) is no error."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            _discard_stdout()
            raise typer.Exit(ExitCode.OK) from None

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """As the base class; in standalone mode, errors become messages and exit codes."""
        arguments = list(sys.argv[1:] if args is None else args)

        def run() -> Any:
            return super(NestmapGroup, self).main(
                arguments, prog_name, complete_var, False, windows_expand_args, **extra
            )

        if not standalone_mode:
            return run()
        as_json = "--json" in arguments
        debug = os.environ.get(DEBUG_VARIABLE, "") not in ("", "0")
        try:
            result = run()
        except (KeyboardInterrupt, typer.Abort):
            sys.exit(ExitCode.INTERRUPTED)
        except NestmapError as error:
            if debug:
                traceback.print_exc()
            if isinstance(error, EmptySpaceError) and not as_json:
                write_conflict(error.conflict)
            write_problems(kind_of_error(error), error.problems, as_json, _more(error))
            sys.exit(exit_code_of(error))
        except Exception as error:
            sys.exit(_report(error, as_json, debug))
        sys.exit(result if isinstance(result, int) else ExitCode.OK)


def _more(error: NestmapError) -> dict[str, object]:
    """What the JSON of an error has beside its problems."""
    if isinstance(error, EmptySpaceError):
        return {"conflict": error.conflict}
    return {}


def _report(error: Exception, as_json: bool, debug: bool) -> int:
    """Usage errors in the words of the parser, anything else as our own mistake."""
    if debug:
        traceback.print_exc()
    # Typer's usage errors stand in a private module of some versions, so by what they can.
    describe = getattr(error, "format_message", None)
    if describe is not None:
        text = str(describe()).strip()
        if not text:  # no command at all: the help was printed
            return ExitCode.BAD_INPUT
        path = getattr(getattr(error, "ctx", None), "command_path", "nestmap")
        problem = Problem("", text, remedy=f"{path} --help")
        write_problems("usage", [problem], as_json)
        return ExitCode.BAD_INPUT
    what = "out of memory" if isinstance(error, MemoryError) else "an unexpected failure"
    found = f"{type(error).__name__}: {error}".strip(": ")
    problem = Problem("", what, found, remedy=f"{DEBUG_VARIABLE}=1 shows where")
    write_problems("unexpected", [problem], as_json)
    return ExitCode.UNEXPECTED


def _discard_stdout() -> None:
    """What is still buffered must not fail again when Python ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
