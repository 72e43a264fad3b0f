"""``nestmap derive``: a program after each step of a schedule."""

from __future__ import annotations

from typing import Annotated

import typer

from mapper.ast_model.bounded_json import loads_bounded
from mapper.ast_model.codec import program_to_json
from mapper.ast_model.nodes import Program
from mapper.ast_model.text_form import to_text
from mapper.errors import InputError, Problem
from mapper.schedules.schedule import Schedule, derive
from mapper.schedules.schedule_text import parse_schedule, schedule_from_json, use_to_text
from nestmap.cli.output import write_json, write_line, write_text
from nestmap.cli.request import JsonOption, VariantOption, XArgument
from nestmap.subjects import STDIN, load_subject, read_bounded

HIGH_LEVEL = "high-level"
MAX_SCHEDULE_BYTES = 2**20
MAX_SCHEDULE_VALUES = 50_000


def derive_command(
    x: XArgument,
    schedule: Annotated[
        str,
        typer.Argument(
            metavar="SCHEDULE",
            help="A file with a schedule, as text or JSON (nestmap/schedule/1); - reads standard "
            "input.",
            show_default=False,
        ),
    ],
    variant: VariantOption = None,
    last: Annotated[
        bool,
        typer.Option(help="Print the last program alone, which the other commands take as X."),
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Rewrite a program by the steps of a schedule, and show it after each."""
    if x == STDIN and schedule == STDIN:
        raise InputError(Problem("", "program and schedule cannot both be standard input"))
    program = load_subject(x, variant, default=HIGH_LEVEL).require_program()
    wanted = read_schedule(schedule)
    if not last:
        _start(program, json_output)
    for number, stage in enumerate(derive(program, wanted), 1):
        step = stage.step
        program = step.program
        if last:
            continue
        use = use_to_text(stage.use)
        if json_output:
            write_json(
                {
                    "step": number,
                    "use": use,
                    "parameters": {p.name: list(p.values) for p in step.parameters},
                    "constraints": list(step.constraints),
                    "program": program_to_json(program),
                }
            )
            continue
        write_line(f"\n{number}. {use}")
        for parameter in step.parameters:
            write_line(f"   parameter {parameter.name}")
        for constraint in step.constraints:
            write_line(f"   {constraint}")
        write_text(to_text(program))
    if last and json_output:
        write_json(program_to_json(program))
    elif last:
        write_text(to_text(program))


def _start(program: Program, json_output: bool) -> None:
    if json_output:
        write_json({"step": 0, "program": program_to_json(program)})
    else:
        write_text(to_text(program))


def read_schedule(name: str) -> Schedule:
    """The schedule in a file, or on standard input for ``-``."""
    text = read_bounded(name, MAX_SCHEDULE_BYTES)
    shown = "standard input" if name == STDIN else name
    try:
        if text.lstrip().startswith("{"):
            return schedule_from_json(loads_bounded(text, max_values=MAX_SCHEDULE_VALUES))
        return parse_schedule(text)
    except InputError as error:
        raise InputError(
            Problem(f"{shown}: {p.path}" if p.path else shown, p.message, p.found, p.allowed,
                    p.remedy)
            for p in error.problems
        ) from error  # fmt: skip
