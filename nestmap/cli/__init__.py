"""The command line. Each command is a file of its own; :func:`main` is the console script.

Commands raise errors; ``group.py`` prints them and chooses the exit code. A command's module is
loaded when it is named, so that ``nestmap --help`` answers at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import typer

from nestmap import __version__
from nestmap.cli.group import Listed, NestmapGroup


class _Commands(NestmapGroup):
    """Every command with what ``--help`` says of it: the first line of its own help."""

    listed: ClassVar[Mapping[str, Listed]] = {
        "solve": Listed(
            "solve:solve",
            "Find valid mappings: enumerate them, draw some at random, or count them all.",
        ),
        "check": Listed(
            "check:check",
            "Say whether a mapping is valid, and if not (exit code 1) why, and what to change.",
        ),
        "constraints": Listed(
            "constraints:constraints",
            "List every constraint that a mapping must satisfy, rule by rule.",
        ),
        "kernel": Listed(
            "kernel:kernel",
            "Print the OpenCL kernels of a mapping, and what the host does to run them.",
        ),
        "tune": Listed(
            "tune:tune",
            "Tune X on a device: every candidate is verified, timed and stored at once.",
        ),
        "front": Listed(
            "front:front",
            "Show the points that no other measured candidate beats in both time and memory.",
        ),
        "devices": Listed(
            "devices:app",
            "List the OpenCL devices of this machine and the shipped profiles, with their limits.",
        ),
        "serve": Listed(
            "serve:serve", "Serve the HTTP API with everything it needs; Ctrl-C stops it."
        ),
        "solver-worker": Listed(
            "solver_worker:solver_worker",
            "Work on solve and propose jobs that a RabbitMQ rings for, until a signal comes.",
        ),
        "worker": Listed(
            "worker:worker",
            "Serve a measuring device to a nestmap server: lease jobs, measure, report.",
            # Its own parser says what the options are, so that boards with Python alone have
            # the same.
            {
                "allow_extra_args": True,
                "ignore_unknown_options": True,
                "help_option_names": [],
            },
        ),
        "db": Listed("database:app", "Look at a store's schema, bring it up to date, copy it."),
        "bench": Listed("bench:app", "Campaigns whose figures stand in the docs."),
    }


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
