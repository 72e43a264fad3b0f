"""The command line. Each command is a file of its own; :func:`main` is the console script.

Commands raise errors; ``group.py`` prints them and chooses the exit code. A command's module is
loaded when it is named, so that ``nestmap --help`` answers at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar

import typer

from mapper.errors import InputError, Problem
from nestmap import __version__
from nestmap.cli.group import Listed, NestmapGroup

#: Distributions add commands by entry points of this group: a name, and the place of an app.
ENTRY_POINTS = "nestmap.commands"
_NO_BENCH = Problem(
    "bench",
    "nestmap-bench is not installed, which campaigns and comparisons come with",
    remedy="python -m pip install -e bench, in a checkout of nestmap's repository",
)


@cache
def _added() -> Mapping[str, Listed]:
    """Commands of other distributions, nothing of which is imported: ``--help`` says what their
    summary says."""
    from importlib.metadata import entry_points

    return {
        point.name: Listed(point.value, point.dist.metadata["Summary"] if point.dist else "")
        for point in entry_points(group=ENTRY_POINTS)
    }


class _Commands(NestmapGroup):
    """Every command with what ``--help`` says of it: the first line of its own help."""

    listed: ClassVar[Mapping[str, Listed]] = {
        "solve": Listed(
            ".solve:solve",
            "Find valid mappings: enumerate them, draw some at random, or count them all.",
        ),
        "check": Listed(
            ".check:check",
            "Say whether a mapping is valid, and if not (exit code 1) why, and what to change.",
        ),
        "constraints": Listed(
            ".constraints:constraints",
            "List every constraint that a mapping must satisfy, rule by rule.",
        ),
        "kernel": Listed(
            ".kernel:kernel",
            "Print the OpenCL kernels of a mapping, and what the host does to run them.",
        ),
        "derive": Listed(
            ".derive:derive_command",
            "Rewrite a program by the steps of a schedule, and show it after each.",
        ),
        "sketches": Listed(
            ".sketches:sketches_command",
            "List the schedules worth having of a program on a device, each with its reason.",
        ),
        "tune": Listed(
            ".tune:tune",
            "Tune X on a device: every candidate is verified, timed and stored at once.",
        ),
        "front": Listed(
            ".front:front",
            "Show the points that no other measured candidate beats in both time and memory.",
        ),
        "devices": Listed(
            ".devices:app",
            "List the OpenCL devices of this machine and the shipped profiles, with their limits.",
        ),
        "serve": Listed(
            ".serve:serve", "Serve the HTTP API with everything it needs; Ctrl-C stops it."
        ),
        "solver-worker": Listed(
            ".solver_worker:solver_worker",
            "Work on solve and propose jobs that a RabbitMQ rings for, until a signal comes.",
        ),
        "worker": Listed(
            ".worker:worker",
            "Serve a measuring device to a nestmap server: lease jobs, measure, report.",
            # Its own parser says what the options are, so that boards with Python alone have
            # the same.
            {
                "allow_extra_args": True,
                "ignore_unknown_options": True,
                "help_option_names": [],
            },
        ),
        "db": Listed(".database:app", "Look at a store's schema, bring it up to date, copy it."),
    }

    def added(self) -> Mapping[str, Listed]:
        """What entry points name."""
        return _added()

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As the base class; says how to install a command that is known and not there."""
        if args and args[0] == "bench" and "bench" not in self.added():
            raise InputError(_NO_BENCH)
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="nestmap",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # To load what draws boxes takes longer than all the rest of --help.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nestmap {__version__}")
        raise typer.Exit


@app.callback()
def nestmap(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print it, end."),
    ] = False,
) -> None:
    """Every valid way to run a convolution in parallel, with proof, kernels and times."""


def main() -> None:
    """The ``nestmap`` command."""
    app()
