"""``nestmap derive``: a program after each step of a schedule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mapper.ast_model.bounded_json import loads_bounded
from mapper.ast_model.codec import program_to_json
from mapper.ast_model.nodes import Program
from mapper.ast_model.text_form import parse, to_text
from mapper.errors import InputError, Problem
from mapper.schedules.loop_pictures import loops_svg
from mapper.schedules.loops import loops_text
from mapper.schedules.schedule import Schedule, derive
from mapper.schedules.schedule_text import parse_schedule, schedule_from_json, schedule_to_json
from nestmap.cli.output import write_json, write_line, write_text
from nestmap.cli.remote import TokenFileOption, UrlOption, asking, service_at
from nestmap.cli.request import JsonOption, VariantOption, XArgument
from nestmap.derivations import HIGH_LEVEL, Bounded, stage_to_json
from nestmap.subjects import STDIN, load_subject, read_bounded

if TYPE_CHECKING:
    from nestmap.client import Client
    from nestmap.client.documents import Derivation

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
    loops: Annotated[
        bool,
        typer.Option(help="Show the loops of each program (maps, reduces, buffers), not its text."),
    ] = False,
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also draw the loops of the first program and of the last as SVG.",
            show_default=False,
        ),
    ] = None,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json_output: JsonOption = False,
) -> None:
    """Rewrite a program by the steps of a schedule, and show it after each."""
    if x == STDIN and schedule == STDIN:
        raise InputError(Problem("", "program and schedule cannot both be standard input"))
    program = load_subject(x, variant, default=HIGH_LEVEL).require_program()
    wanted = read_schedule(schedule)
    shown = "loops" if loops else "text"
    service = service_at(url, token_file)
    if service is None:
        steps = _steps(program, wanted, texts=not last)
    else:
        with service, asking():
            steps = _steps_there(service, program, wanted)
    if not last:
        _write_start(program, shown, json_output)
    start = program
    for step in steps:
        program = step["program"]
        if not last:
            _write_step(step, shown, json_output)
    if last:
        _write_program(program, shown, json_output)
    if picture is not None:
        drawn = loops_svg([("before", start), ("after", program)])
        _write_file(picture, drawn)


def _steps(program: Program, schedule: Schedule, texts: bool) -> Iterator[Mapping[str, Any]]:
    """Each step as in ``nestmap/derivation/1`` with its program; without texts the program."""
    bounded = Bounded()
    for number, stage in enumerate(derive(program, schedule), 1):
        made = {"program": stage.step.program}
        yield {**stage_to_json(number, stage, bounded), **made} if texts else made


def _steps_there(
    service: Client, program: Program, schedule: Schedule
) -> Iterator[Mapping[str, Any]]:
    """The same from a service."""
    subject = {"document": program_to_json(program)}
    found = service.derive(subject, schedule_to_json(schedule), partial=True)
    return _until_refusal(found)


def _until_refusal(found: Derivation) -> Iterator[Mapping[str, Any]]:
    for step in found["steps"]:
        yield {**step, "program": parse(step["text"])}
    if (why := found["refusal"]) is not None:
        where = f"step {why['step']}" + (f", {why['target']}" if why["target"] else "")
        raise InputError(
            Problem(where, why["message"], why["found"], why["allowed"], why["remedy"])
        )


def _write_start(program: Program, shown: str, json_output: bool) -> None:
    if json_output:
        write_json({"step": 0, "program": program_to_json(program)})
    else:
        _write_program(program, shown, False)


def _write_step(step: Mapping[str, Any], shown: str, json_output: bool) -> None:
    if json_output:
        names = ("step", "use", "parameters", "constraints")
        program = program_to_json(step["program"])
        write_json({**{name: step[name] for name in names}, "program": program})
        return
    write_line(f"\n{step['step']}. {step['use']}")
    for name in step["parameters"]:
        write_line(f"   parameter {name}")
    for constraint in step["constraints"]:
        write_line(f"   {constraint}")
    write_text(step[shown])


def _write_program(program: Program, shown: str, json_output: bool) -> None:
    if json_output:
        write_json(program_to_json(program))
    else:
        write_text(loops_text(program) if shown == "loops" else to_text(program))


def _write_file(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(Problem("--picture", f"cannot be written: {reason}", str(path))) from None


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
