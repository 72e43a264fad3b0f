"""What ``nestmap solve --best`` says."""

from __future__ import annotations

from pathlib import Path

import typer

from mapper.errors import InputError, Problem
from mapper.pipeline import answer_to_json
from nestmap.cli.drawing import write_mapping
from nestmap.cli.exit_codes import ExitCode
from nestmap.cli.output import Progress, note, write_json, write_text
from nestmap.cli.solving import Source
from nestmap.requests import Request, refuse_unpredictable


def write_best(
    request: Request, source: Source, count: int, constants: Path | None, seed: int, as_json: bool
) -> None:
    """Find and write the best predicted candidates; exit code LIMIT if others may be faster."""
    refuse_unpredictable(request)
    # Loads the solver: half a second that --help and usage errors should not take.
    from nestmap.tuning.calibration import read_constants

    chosen = None if constants is None else read_constants(constants)
    with Progress("solving") as progress:
        result = source.best(count, chosen, seed, lambda number: progress.update(int(number)))
    if as_json:
        best = [
            {"predicted_ms": time_ms, **answer_to_json(request.subject, assignment)}
            for assignment, time_ms in result.found
        ]
        write_json(
            {"best": best, "bound_ms": result.bound_ms, "gap": result.gap,
             "proved": result.proved, "predicted": result.predicted, **request.variant()}
        )  # fmt: skip
    else:
        for number, (assignment, time_ms) in enumerate(result.found, 1):
            title = f"mapping {number}, predicted {time_ms:.6g} ms"
            write_mapping(request.subject, assignment, title)
        if result.bound_ms is None:
            write_text(f"no mapping has a kernel ({result.predicted} looked at)")
        else:
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
