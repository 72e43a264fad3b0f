"""``nestmap bench completeness``: what the rules reject although it runs right."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from mapper.errors import InputError, Problem
from nestmap.cli.exit_codes import ExitCode
from nestmap.cli.output import Progress, note, write_json, write_text


def completeness(
    programs: Annotated[
        list[str] | None,
        typer.Option("--programs", help="One by name; may be repeated. All if none."),
    ] = None,
    random_programs: Annotated[
        int, typer.Option("--random", min=0, max=10_000, help="Random programs besides.")
    ] = 12,
    seed: Annotated[int, typer.Option(min=0, help="Of the random programs.")] = 0,
    device_checks: Annotated[
        int, typer.Option(min=0, help="Kernels of a program that PoCL runs too.")
    ] = 20,
    out: Annotated[Path, typer.Option(help="The file of results, written after each program.")] = (
        Path("out/bench-completeness.json")
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Every assignment of small programs, the rejected ones too, run in Oclgrind.

    Exit code 1 if an accepted one fails. Ctrl-C keeps the programs that are done.
    """
    from bench.proofs.completeness.campaign import ProgramResult, walk_program
    from bench.proofs.completeness.programs import family
    from bench.proofs.completeness.programs import random_programs as drawn
    from bench.proofs.completeness.report import markdown, to_json, write_result
    from bench.proofs.completeness.walk import grid_of
    from worker.devices.facts import device_facts
    from worker.devices.opencl import find_device

    known = {program.name: program for program in family()}
    unknown = [name for name in programs or () if name not in known]
    if unknown:
        raise InputError(
            Problem("--programs", "there is no such program", unknown[0], ", ".join(known))
        )
    chosen = [known[name] for name in programs] if programs else list(known.values())
    facts = device_facts(find_device("host"))
    results: list[ProgramResult] = []
    value: dict[str, Any] = {}
    for program in (*chosen, *drawn(seed, random_programs)):
        started = time.monotonic()
        with Progress(program.name) as progress:
            result = walk_program(
                program,
                grid_of(program.maps),
                device_checks=device_checks,
                progress=progress.update,
            )
        result.seconds = time.monotonic() - started
        results.append(result)
        note(_line(result.name, result.assignments, result.kernels, result.seconds))
        for failure in result.failures:
            note(f"FAILED {program.name}: {failure}")
        value = to_json(results, seed, facts)
        write_result(out, value)
    if as_json:
        write_json(value)
    else:
        write_text(markdown(results))
        write_text(
            f"{value.get('assignments', 0)} assignments, {value.get('kernels', 0)} kernels run, "
            f"{value.get('failures', 0)} accepted ones failed; {out}"
        )
    if value.get("failures"):
        raise typer.Exit(ExitCode.NEGATIVE)


def _line(name: str, assignments: int, kernels: int, seconds: float) -> str:
    return f"{name}: {assignments} assignments, {kernels} kernels, {seconds:.0f} s"
