"""``nestmap check``: is a mapping valid, and if not, what does it break and what would help?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mapper.constraint_rules.rule import Mode
from mapper.errors import InputError, LimitError, Problem
from mapper.pipeline import Assignment, answer_to_json
from mapper.solver.restrictions import Restrictions
from mapper.tuning_space.configuration import configuration_from_json
from nestmap.answers import (
    EmptySpaceError,
    assumed_to_json,
    empty_space_problem,
    nearest_to_json,
    violation_to_json,
)
from nestmap.cli.exit_codes import ExitCode
from nestmap.cli.explanations import explained, write_conflict, write_nearest, write_reasons
from nestmap.cli.output import Progress, note, write_json, write_text
from nestmap.cli.remote import (
    TokenFileOption,
    UrlOption,
    asking,
    question_of,
    service_at,
    subject_of,
)
from nestmap.cli.request import (
    DEFAULT_TIME_LIMIT_S,
    DeviceOption,
    ForbidOption,
    FreeGridOption,
    JsonOption,
    ModeOption,
    PinOption,
    ReplicatePrivateOption,
    SeedOption,
    SequentialFusionOption,
    SuitsOption,
    TimeLimitOption,
    VariantOption,
    WhereOption,
    XArgument,
    prepare,
    seconds_or_none,
    stated_by,
)
from nestmap.device_limits import DEFAULT_DEVICE
from nestmap.mappings import (
    Given,
    Verdict,
    judge,
    read_mapping,
    schedule_of_text,
    variant_of_text,
    without_preferences,
)
from nestmap.requests import Request
from nestmap.restrictions import read_restrictions
from nestmap.subjects import read_bounded

if TYPE_CHECKING:
    from nestmap.client import Client
    from nestmap.client.calls import CheckQuestion


def check(
    x: XArgument,
    mapping: Annotated[
        str,
        typer.Argument(
            metavar="MAPPING.json",
            help="A file as solve --json writes it a line, or tune --json; - reads standard input.",
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
    suits: SuitsOption = None,
    sequential_fusion: SequentialFusionOption = True,
    replicate_private: ReplicatePrivateOption = False,
    free_grid: FreeGridOption = False,
    where: WhereOption = None,
    device: DeviceOption = DEFAULT_DEVICE,
    seed: SeedOption = 0,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json_output: JsonOption = False,
) -> None:
    """Say whether a mapping is valid, and if not (exit code 1) why, and what to change.

    What is pinned or forbidden binds the valid mapping that is looked for, not the verdict.
    """
    del seed  # every command has it; nothing here is random
    text = read_bounded(mapping)
    stated = stated_by(suits, sequential_fusion, replicate_private, free_grid, where)
    schedule = schedule_of_text(text)
    request = prepare(x, variant_with(text, variant), mode, device, stated, schedule)
    restrictions = read_restrictions(request.space, pin or (), forbid or ())
    request = replace(request, restrictions=restrictions)
    given = read_text(request, text)
    if (service := service_at(url, token_file)) is None:
        parts = _found_here(request, given, nearest, time_limit)
    else:
        with service:
            parts = _found_there(service, request, given, nearest, time_limit, pin, forbid)
    # Each part is written as soon as it is found; the keys are there where something was looked
    # for, found or not.
    found: dict[str, Any] = {}
    for part in parts:
        found |= part
        if not json_output:
            _write_part(request, part)
    if json_output:
        write_json({"valid": found["valid"], "mode": mode.value, **found, **request.variant()})
    if not found["valid"]:
        raise typer.Exit(ExitCode.NEGATIVE)


def _found_here(
    request: Request, given: Given, nearest: bool, time_limit: float
) -> Iterator[dict[str, Any]]:
    """The parts of the answer, in the words of the API, one after the other."""
    verdict = _judged(request, given, time_limit)
    yield {
        "valid": verdict.valid,
        "violations": [violation_to_json(violation) for violation in verdict.violations],
        "preferences": [violation_to_json(violation) for violation in verdict.preferences],
        "assumed": assumed_to_json(request.subject, verdict.assumed),
    }
    if verdict.guessed:
        pinned = replace(request, restrictions=Restrictions(given.assignment))
        error = explained(pinned, seconds_or_none(time_limit))
        conflict = error.conflict if isinstance(error, EmptySpaceError) else None
        yield {"completion_conflict": conflict}
    if nearest and not verdict.valid:
        yield _nearest(request, given.assignment, time_limit)


def _found_there(
    service: Client,
    request: Request,
    given: Given,
    nearest: bool,
    time_limit: float,
    pin: list[str] | None,
    forbid: list[str] | None,
) -> list[dict[str, Any]]:
    """The same parts from a service."""
    question: CheckQuestion = {
        **question_of(request, time_limit),
        "nearest": nearest,
        "pin": pin or (),
        "forbid": forbid or (),
    }
    mapping = answer_to_json(request.subject, given.assignment)
    with Progress("checking"), asking(request):
        verdict = service.check(subject_of(request), mapping, **question)
    parts: list[dict[str, Any]] = [
        {"valid": verdict["valid"], "violations": verdict["violations"],
         "preferences": verdict.get("preferences", []), "assumed": verdict["assumed"]}
    ]  # fmt: skip
    if "completion_conflict" in verdict:
        parts.append({"completion_conflict": verdict["completion_conflict"]})
    if nearest and not verdict["valid"]:
        part: dict[str, Any] = {"nearest": verdict.get("nearest")}
        if limit := verdict.get("nearest_limit"):
            note(limit)
        elif part["nearest"] is None:
            part["conflict"] = verdict.get("conflict")
        parts.append(part)
    return parts


def judge_text(request: Request, text: str, time_limit: float) -> Verdict:
    """Judge the mapping of a file's text in the space of the request."""
    return _judged(request, read_text(request, text), time_limit)


def variant_with(text: str, variant: str | None) -> str | None:
    """The variant that is asked about with a mapping: the one that is named, else what the
    mapping's file says; InputError where these contradict each other."""
    said = variant_of_text(text)
    if said is not None and variant not in (None, said):
        raise InputError(
            Problem("--variant", "the mapping is of another variant", str(variant), said)
        )
    return variant or said


def read_text(request: Request, text: str) -> Given:
    """The mapping of a file's text, of a tuning space its configuration.

    A note says what does not belong to the space.
    """
    if request.subject.tuning_space is not None:
        return Given(configuration_from_json(request.subject.tuning_space, text))
    given = read_mapping(request.space, text, request.mode)
    if given.ignored:
        note(f"paper mode knows no {' and no '.join(given.ignored)}: left out")
    return given


def _judged(request: Request, given: Given, time_limit: float) -> Verdict:
    with Progress("checking"):
        return judge(request.space, given.assignment, seconds_or_none(time_limit))


def _write_part(request: Request, part: Mapping[str, Any]) -> None:
    """One part of the answer as text."""
    if "valid" in part:
        _write_verdict(part)
    if part.get("completion_conflict") is not None:
        write_text("other tuning parameters and local sizes break something else:")
        write_conflict(part["completion_conflict"])
    if part.get("nearest") is not None:
        write_nearest(request.subject.answer, part["nearest"])
    if "conflict" in part:
        write_text(empty_space_problem(request).message)
        if part["conflict"] is not None:
            write_conflict(part["conflict"])


def _write_verdict(verdict: Mapping[str, Any]) -> None:
    violations = verdict["violations"]
    count = len(violations)
    write_text("valid" if verdict["valid"] else f"invalid: {count} violation{'s' * (count != 1)}")
    for what, values in verdict["assumed"].items():
        chosen = ", ".join(f"{name}={value}" for name, value in values.items())
        if chosen:
            write_text(f"assumed {what.replace('_', ' ')}: {chosen}")
    if violations:
        write_reasons(violations)
    if preferences := verdict["preferences"]:
        names = ", ".join(dict.fromkeys(one["rule"] for one in preferences))
        write_text(f"it breaks {names}: a preference, which no wrong result comes of")
        write_reasons(preferences)


def _nearest(request: Request, given: Assignment, time_limit: float) -> dict[str, Any]:
    """The nearest valid mapping, or why there is none."""
    # Loads the solver, which most checks do not need.
    from mapper.solver.nearest import nearest

    limit_s = seconds_or_none(time_limit)
    try:
        with Progress("looking for the nearest valid mapping"):
            space = without_preferences(request.space)
            found = nearest(space, given, request.restrictions, time_limit_s=limit_s)
    except LimitError as error:
        note(str(error.problems[0]))
        return {"nearest": None}
    if found is not None:
        return {"nearest": nearest_to_json(request.subject, found)}
    error = explained(request, limit_s)
    conflict = error.conflict if isinstance(error, EmptySpaceError) else None
    return {"nearest": None, "conflict": conflict}
