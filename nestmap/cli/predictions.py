"""What ``nestmap solve --best`` says."""

from __future__ import annotations

from pathlib import Path

import typer

from mapper.errors import InputError, Problem
from mapper.pipeline import answer_to_json
from mapper.solver.limits import Watch
from nestmap.cli.drawing import write_mapping
from nestmap.cli.exit_codes import ExitCode
from nestmap.cli.output import Progress, note, write_json, write_text
from nestmap.requests import Request


def write_best(
    request: Request, count: int, constants: Path | None, seed: int, watch: Watch, as_json: bool
) -> None:
    """Find and write the best predicted candidates; exit code LIMIT if others may be faster."""
    # These load the solver: half a second that --help and usage errors should not take.
    from nestmap.predicting import best_of_request
    from nestmap.tuning.calibration import read_constants
    from nestmap.tuning.descriptions import CONSTANTS

    chosen = CONSTANTS if constants is None else read_constants(constants)
    with Progress("solving") as progress:
        watch.progress = lambda number: progress.update(int(number))
        result = best_of_request(request, count, chosen, seed, watch)
    if as_json:
        best = [
            {"predicted_ms": entry.time_ms, **answer_to_json(request.subject, entry.assignment)}
            for entry in result.found
        ]
        write_json(
            {"best": best, "bound_ms": result.bound_ms if result.found else None, "gap": result.gap,
             "proved": result.proved, "predicted": result.predicted}
        )  # fmt: skip
    else:
        for number, entry in enumerate(result.found, 1):
            title = f"mapping {number}, predicted {entry.time_ms:.6g} ms"
            write_mapping(request.subject, entry.assignment, title)
        write_text(
            f"none of the space is predicted below {result.bound_ms:.6g} ms: at most "
            f"{result.gap:.1%} faster than the first ({result.predicted} predicted in full)"
        )
    if not result.proved:
        note("others may be predicted to be faster than these: --time-limit gives more")
        raise typer.Exit(ExitCode.LIMIT)


def refuse_with_best(**given: object) -> None:
    """InputError for options that say nothing beside ``--best``."""
    for option, value in given.items():
        if value:
            name = f"--{option.replace('_', '-')}"
            raise InputError(Problem(name, "goes with no --best"))
