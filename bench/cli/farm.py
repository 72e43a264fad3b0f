"""``nestmap bench farm``: what one host carries, with all of the farm's services on loopback."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from mapper.errors import InputError, Problem
from nestmap.cli.exit_codes import ExitCode
from nestmap.cli.output import printable, write_json, write_table, write_text

_STORES = ("postgres", "sqlite")


def farm(
    store: Annotated[
        str, typer.Option(help="postgres (with RabbitMQ and solver workers) or sqlite.")
    ] = "postgres",
    small: Annotated[bool, typer.Option("--small", help="A run of seconds.")] = False,
    boards: Annotated[int | None, typer.Option(min=0, max=10_000, show_default="1000")] = None,
    rate: Annotated[
        list[float] | None,
        typer.Option(min=0.1, help="Jobs offered a second; repeatable.", show_default="40"),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=1, help="Of each load.", show_default="60")
    ] = None,
    runs: Annotated[int | None, typer.Option(min=1, help="Of each load.", show_default="3")] = None,
    closed: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds with a job for every board; 0: none.", show_default="20"),
    ] = None,
    studies: Annotated[
        int | None, typer.Option(min=0, help="Of measurements.", show_default="100")
    ] = None,
    points: Annotated[
        int | None, typer.Option(min=1, help="Measurements a study.", show_default="100000")
    ] = None,
    workers: Annotated[
        list[int] | None,
        typer.Option(min=0, help="Solver workers; repeatable; 0: none.", show_default="1, 2"),
    ] = None,
    layer: Annotated[
        list[str] | None,
        typer.Option(
            "--layers",
            help="Whose mappings are listed; repeatable.",
            show_default="all nine of VGG-16",
        ),
    ] = None,
    mappings: Annotated[
        bool, typer.Option("--mappings/--no-mappings", help="Time how mappings are listed, too.")
    ] = True,
    processes: Annotated[
        int, typer.Option(min=1, max=64, help="Of the API, at one port; PostgreSQL alone.")
    ] = 1,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    keep: Annotated[Path | None, typer.Option(help="Keep logs and data in this folder.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the results as JSON, too.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Start the farm on this host, load it with simulated boards, and say what it carries.

    PostgreSQL and RabbitMQ of its own, the API, solver workers and boards; everything is stopped
    at the end, also on Ctrl-C. Exit code 1 if a job was lost or stored twice.
    """  # fmt: skip
    from bench.farm.campaign import SMALL, Sizes, measure
    from bench.space_solving.results import facts_of_run
    from mapper.layer_spec import VGG16_UNIQUE

    if store not in _STORES:
        raise InputError(Problem("--store", "no such store", store, ", ".join(_STORES)))
    if processes > 1 and store != "postgres":
        raise InputError(Problem("--processes", "SQLite has one", str(processes), "1"))
    layers = tuple(layer or (VGG16_UNIQUE[:1] if small else VGG16_UNIQUE)) if mappings else ()
    given: dict[str, Any] = {
        "boards": boards, "rates": None if rate is None else tuple(rate), "seconds": seconds,
        "runs": runs, "closed_s": closed, "studies": studies, "points": points,
        "workers": None if workers is None else tuple(number for number in workers if number),
    }  # fmt: skip
    sizes = replace(
        SMALL if small else Sizes(),
        layers=layers, seed=seed, api_processes=processes,
        **{n: value for n, value in given.items() if value is not None},
    )  # fmt: skip
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        found = {**facts_of_run({}), **measure(store, sizes, keep, _say)}
    finally:
        signal.signal(signal.SIGTERM, before)
    if out is not None:
        _write(out, found)
    if as_json:
        write_json(found)
    else:
        _tables(found)
    if any(loop["jobs"]["lost"] or loop["jobs"]["duplicated"] for loop in _loops(found)):
        raise typer.Exit(ExitCode.NEGATIVE)


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt


def _say(text: str) -> None:
    sys.stderr.write(f"{printable(text)}\n")
    sys.stderr.flush()


def _write(path: Path, value: object) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(Problem("--out", f"cannot be written: {error.strerror}", str(path))) from (
            error
        )


def _loops(found: dict[str, Any]) -> list[dict[str, Any]]:
    pick_up = found.get("pick_up", {})
    closed = [pick_up["closed_loop"]] if "closed_loop" in pick_up else []
    return [*pick_up.get("open_loops", []), *closed]


def _tables(found: dict[str, Any]) -> None:
    rows: list[list[object]] = []
    for loop in _loops(found):
        offered = loop.get("offered_a_second", "all it takes")
        waited = loop.get("pick_up_ms") or loop["result_to_next_job_ms"]
        jobs = loop["jobs"]
        rows.append(
            [offered, loop["stored_a_second"], waited["p50"], waited["p95"], waited["p99"],
             len(jobs["lost"]), len(jobs["duplicated"]), sum(loop["errors"].values()),
             loop["load_before"][0]]
        )  # fmt: skip
    if rows:
        columns = ("jobs/s offered", "stored", "pick-up p50 ms", "p95", "p99", "lost", "twice",
                   "HTTP errors", "load")  # fmt: skip
        write_table(columns, rows, "Jobs", columns)
        services = _loops(found)[0]["services"]
        used = [[name, *of.values()] for name, of in services.items()]
        columns = ("service", "CPU s", "peak MiB", "processes")
        write_table(columns, used, "Of the first load", columns[1:])
    fronts = found.get("fronts")
    if fronts:
        rows = [
            [name, timed["points"], timed["first_ms"], timed["ms"]["p50"], timed["ms"]["p95"]]
            for name, timed in fronts.items()
            if isinstance(timed, dict) and "points" in timed
        ]
        columns = ("front", "points", "first ms", "p50 ms", "p95 ms")
        write_table(columns, rows, f"{fronts['measurements']} measurements", columns[1:])
    first = found.get("first_mappings")
    if first:
        write_text(f"first 100 mappings: {first['warm_ms']['p50']} ms median, warm")
    for part in found.get("enumeration", []):
        each = ", ".join(str(one["mappings_a_second"]) for one in part["rounds"])
        who = f"{part['solver_workers']} solver workers" if not part["embedded"] else "embedded"
        write_text(f"mappings a second, {who}: {each}")
