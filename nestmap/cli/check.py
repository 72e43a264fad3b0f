"""``nestmap check``: is a mapping valid, and if not, what does it break and what would help?"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from mapper.constraint_rules.rule import Mode
from mapper.errors import LimitError
from mapper.pipeline import Assignment
from mapper.solver.restrictions import Restrictions
from mapper.tuning_space.configuration import configuration_from_json
from nestmap.answers import (
    EmptySpaceError,
    assumed_to_json,
    conflict_to_json,
    nearest_to_json,
    violation_to_json,
)
from nestmap.cli.exit_codes import ExitCode
from nestmap.cli.explanations import explained, maps_text, write_conflict, write_nearest
from nestmap.cli.output import Progress, note, write_json, write_table, write_text
from nestmap.cli.request import (
    DEFAULT_TIME_LIMIT_S,
    DeviceOption,
    ForbidOption,
    JsonOption,
    ModeOption,
    PinOption,
    SeedOption,
    TimeLimitOption,
    VariantOption,
    XArgument,
    prepare,
    seconds_or_none,
)
from nestmap.device_limits import DEFAULT_DEVICE
from nestmap.mappings import Given, Verdict, judge, read_mapping
from nestmap.requests import Request
from nestmap.restrictions import read_restrictions
from nestmap.subjects import read_bounded


def check(
    x: XArgument,
    mapping: Annotated[
        str,
        typer.Argument(
            metavar="MAPPING.json",
            help="A file as solve --json writes it a line; - reads standard input.",
            show_default=False,
        ),
    ],
    nearest: Annotated[
        bool,
        typer.Option(help="Look for the valid mapping with the fewest changes."),
    ] = True,
    pin: PinOption = None,
    forbid: ForbidOption = None,
    time_limit: TimeLimitOption = DEFAULT_TIME_LIMIT_S,
    variant: VariantOption = None,
    mode: ModeOption = Mode.STRICT,
    device: DeviceOption = DEFAULT_DEVICE,
    seed: SeedOption = 0,
    json_output: JsonOption = False,
) -> None:
    """Say whether a mapping is valid, and if not (exit code 1) why, and what to change.

    What is pinned or forbidden binds the valid mapping that is looked for, not the verdict.
    """
    del seed  # every command has it; nothing here is random
    request = prepare(x, variant, mode, device)
    restrictions = read_restrictions(request.space, pin or (), forbid or ())
    request = replace(request, restrictions=restrictions)
    given = read_file(request, mapping)
    verdict = _judged(request, given, time_limit)
    if not json_output:
        _write_verdict(request, verdict)
    # The keys are there where something was looked for, found or not.
    more: dict[str, Any] = {}
    if verdict.guessed:
        more |= _completion_conflict(request, given.assignment, time_limit, json_output)
    if nearest and not verdict.valid:
        more |= _nearest(request, given.assignment, time_limit, json_output)
    if json_output:
        violations = [violation_to_json(violation) for violation in verdict.violations]
        write_json(
            {"valid": verdict.valid, "mode": mode.value, "violations": violations,
             "assumed": assumed_to_json(request.subject, verdict.assumed), **more}
        )  # fmt: skip
    if not verdict.valid:
        raise typer.Exit(ExitCode.NEGATIVE)


def judge_file(request: Request, name: str, time_limit: float) -> Verdict:
    """Read a mapping file and judge it in the space of the request."""
    return _judged(request, read_file(request, name), time_limit)


def read_file(request: Request, name: str) -> Given:
    """Read a mapping file, of a tuning space a configuration.

    A note says what does not belong to the space.
    """
    text = read_bounded(name)
    if request.subject.tuning_space is not None:
        return Given(configuration_from_json(request.subject.tuning_space, text))
    given = read_mapping(request.space, text, request.mode)
    if given.ignored:
        note(f"paper mode knows no {' and no '.join(given.ignored)}: left out")
    return given


def _judged(request: Request, given: Given, time_limit: float) -> Verdict:
    with Progress("checking"):
        return judge(request.space, given.assignment, seconds_or_none(time_limit))


def _write_verdict(request: Request, verdict: Verdict) -> None:
    count = len(verdict.violations)
    write_text("valid" if verdict.valid else f"invalid: {count} violation{'s' * (count != 1)}")
    for what, values in assumed_to_json(request.subject, verdict.assumed).items():
        chosen = ", ".join(f"{name}={value}" for name, value in values.items())
        if chosen:
            write_text(f"assumed {what.replace('_', ' ')}: {chosen}")
    if verdict.violations:
        rows = ((v.rule, maps_text(v.maps), v.buffer or "", v.sentence, v.remedy)
                for v in verdict.violations)  # fmt: skip
        write_table(("rule", "maps", "buffer", "why", "remedy"), rows)


def _completion_conflict(
    request: Request, given: Assignment, time_limit: float, json_output: bool
) -> dict[str, Any]:
    """Why no tuning parameters and local sizes go with what is given."""
    request = replace(request, restrictions=Restrictions(given))
    error = explained(request, seconds_or_none(time_limit))
    if not isinstance(error, EmptySpaceError):
        return {"completion_conflict": None}
    if not json_output:
        write_text("other tuning parameters and local sizes break something else:")
        write_conflict(error.conflict)
    return {"completion_conflict": conflict_to_json(error.conflict)}


def _nearest(
    request: Request, given: Assignment, time_limit: float, json_output: bool
) -> dict[str, Any]:
    """The nearest valid mapping, or why there is none: written as text, given back as JSON."""
    # Loads the solver, which most checks do not need.
    from mapper.solver.nearest import nearest

    limit_s = seconds_or_none(time_limit)
    try:
        with Progress("looking for the nearest valid mapping"):
            found = nearest(request.space, given, request.restrictions, time_limit_s=limit_s)
    except LimitError as error:
        note(str(error.problems[0]))
        return {"nearest": None}
    if found is not None:
        if not json_output:
            write_nearest(request.subject, found)
        return {"nearest": nearest_to_json(request.subject, found)}
    error = explained(request, limit_s)
    if not json_output:
        write_text(error.problems[0].message)
    if not isinstance(error, EmptySpaceError):
        return {"nearest": None}
    if not json_output:
        write_conflict(error.conflict)
    return {"nearest": None, "conflict": conflict_to_json(error.conflict)}
