"""The command line. Each command is a file of its own; :func:`main` is the console script.

Commands raise errors; ``group.py`` prints them and chooses the exit code. What is slow to
load (the solver, the store, OpenCL) is imported inside the command that needs it, so that
``nestmap --help`` answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from nestmap import __version__
from nestmap.cli import (
    bench,
    check,
    constraints,
    database,
    devices,
    front,
    kernel,
    serve,
    solve,
    solver_worker,
    tune,
    worker,
)
from nestmap.cli.group import NestmapGroup

app = typer.Typer(
    name="nestmap",
    cls=NestmapGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
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


app.command()(solve.solve)
app.command()(check.check)
app.command()(constraints.constraints)
app.command()(kernel.kernel)
app.command()(tune.tune)
app.command()(front.front)
app.add_typer(devices.app, name="devices")
app.command()(serve.serve)
app.command()(solver_worker.solver_worker)
app.command(context_settings=worker.CONTEXT)(worker.worker)
app.add_typer(database.app, name="db")
app.add_typer(bench.app, name="bench")


def main() -> None:
    """The ``nestmap`` command."""
    app()
