"""``nestmap solver-worker``: solving and printing of kernels for a farm."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from mapper.errors import InputError, Problem
from nestmap.cli.farm_options import option_or_environment
from nestmap.cli.output import write_text

SCHEMES = ("amqp://", "amqps://")


def solver_worker(
    broker: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="RabbitMQ, amqp(s)://… (or NESTMAP_BROKER, NESTMAP_BROKER_FILE: no list of "
            "processes shows its password then).",
        ),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The farm's store (or NESTMAP_STORE, NESTMAP_STORE_FILE).",
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(min=1, max=256, help="Jobs at once.", show_default="one a core"),
    ] = None,
    memory_mb: Annotated[
        int, typer.Option(min=512, help="Memory that one solve job may use.")
    ] = 2048,
    verbose: Annotated[bool, typer.Option(help="Say what is worked on.")] = False,
) -> None:
    """Work on solve and propose jobs that a RabbitMQ rings for, until a signal comes."""
    broker_url = option_or_environment(broker, "NESTMAP_BROKER")
    if not broker_url.startswith(SCHEMES):
        found = broker_url.partition("://")[0] or "none"
        raise InputError(Problem("--broker", "not a RabbitMQ", found, " or ".join(SCHEMES)))
    store = option_or_environment(database, "NESTMAP_STORE")
    if not store:
        raise InputError(Problem("--database", "say where the farm's store is", "", "a URL"))
    try:
        from nestmap.farm.solver_worker import run_worker
    except ModuleNotFoundError as error:
        raise InputError(
            Problem(
                "--broker", f"{error.name} is not installed", remedy="pip install nestmap[cluster]"
            )
        ) from None
    from api.solver_pool import SolverLimits

    number = processes or len(os.sched_getaffinity(0))
    write_text(f"{number} processes wait for bells; Ctrl-C stops them")
    run_worker(
        broker_url,
        store,
        processes=number,
        limits=SolverLimits(memory_bytes=memory_mb * 2**20),
        log_level="INFO" if verbose else "WARNING",
    )
