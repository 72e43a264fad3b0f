"""The command group: turns every error into one clear message and an exit code."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup
from typer.main import get_command

from mapper.errors import NestmapError, Problem
from nestmap.cli.exit_codes import ExitCode, exit_code_of, kind_of_error

DEBUG_VARIABLE = "NESTMAP_DEBUG"


@dataclass(frozen=True, slots=True)
class Listed:
    """A command that is loaded when it is named: ``module:function``, or an app, the module with
    a dot before it if it is of this package; what ``--help`` says of it in a line; click's
    settings of its context."""

    place: str
    help: str
    settings: Mapping[str, Any] | None = None

    def load(self, name: str) -> Any:
        """The command, as click has it."""
        module, _, attribute = self.place.partition(":")
        found = getattr(import_module(module, "nestmap.cli"), attribute)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False)
            alone.command(context_settings=dict(self.settings or {}))(found)
            found = alone
        found.rich_markup_mode = None
        command = get_command(found)
        command.name = name
        return command


class NestmapGroup(TyperGroup):
    """A group whose commands raise errors and never print them; :attr:`listed` ones are loaded
    when they are named, and so are those of :meth:`added`."""

    listed: ClassVar[Mapping[str, Listed]] = {}

    def added(self) -> Mapping[str, Listed]:
        """Commands that other distributions bring."""
        return {}

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of their registration."""
        return [*self.listed, *self.added(), *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by its name; None if there is none."""
        found = self.listed.get(cmd_name) or self.added().get(cmd_name)
        return super().get_command(ctx, cmd_name) if found is None else found.load(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As the base class, whose suggestions are of what is loaded."""
        if args and args[0] not in self.listed and self.listed and args[0] not in self.added():
            close = get_close_matches(args[0], [*self.listed, *self.added()])
            hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """What ``--help`` lists, without loading any of it."""
        if not self.listed:
            super().format_commands(ctx, formatter)
            return
        listed = {**self.listed, **self.added()}
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.help) for name, one in listed.items()])

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
            sys.exit(_refuse(error, as_json))
        except Exception as error:
            sys.exit(_report(error, as_json, debug))
        sys.exit(result if isinstance(result, int) else ExitCode.OK)


def _refuse(error: NestmapError, as_json: bool) -> int:
    """Say what is wrong; the conflict of an empty space too."""
    from nestmap.answers import EmptySpaceError
    from nestmap.cli.explanations import write_conflict
    from nestmap.cli.output import write_problems

    more: dict[str, object] = {}
    if isinstance(error, EmptySpaceError):
        more = {"conflict": error.conflict}
        if not as_json:
            write_conflict(error.conflict)
    write_problems(kind_of_error(error), error.problems, as_json, more)
    return exit_code_of(error)


def _report(error: Exception, as_json: bool, debug: bool) -> int:
    """Usage errors in the words of the parser, anything else as our own mistake."""
    from nestmap.cli.output import write_problems

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
