"""``nestmap solve``: enumerate, sample or count the valid mappings."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import Annotated

import typer

from mapper.constraint_rules.rule import Mode
from mapper.errors import InputError, LimitError, Problem, UnsatisfiableError
from mapper.pipeline import Assignment, answer_to_json, rule_counts
from nestmap.cli.drawing import write_mapping
from nestmap.cli.exit_codes import ExitCode
from nestmap.cli.output import Progress, note, write_json, write_table, write_text
from nestmap.cli.request import (
    DEFAULT_TIME_LIMIT_S,
    DeviceOption,
    JsonOption,
    ModeOption,
    Request,
    SeedOption,
    TimeLimitOption,
    VariantOption,
    XArgument,
    prepare,
    seconds_or_none,
)
from nestmap.device_limits import DEFAULT_DEVICE
from nestmap.mappings import read_pins

DEFAULT_LIMIT = 10

# The six kinds of CC'22, Table 4, and the rules that make up each in paper mode.
TABLE_4: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("private memory", ("private-memory-scoping",)),
    ("shared memory", ("shared-memory-scoping",)),
    ("duplicate scheduling", ("duplicate-scheduling",)),
    ("local thread indexing dimensionality", ("thread-dimensionality",)),
    ("local thread indexing hierarchy", ("local-hierarchy",)),
    ("exhaustive thread indexing", ("exhaustive-indexing",)),
)


def solve(
    x: XArgument,
    count: Annotated[bool, typer.Option("--count", help="Only count the mappings.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(help="How many to enumerate; 0: all.", min=0, show_default=str(DEFAULT_LIMIT)),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(help="Draw this many at random instead of enumerating.", min=1, metavar="N"),
    ] = None,
    pin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Fix a map's schedule (28=W0), a tuning parameter (theta=5) or a local size "
            "(KERNEL.0=8); may be repeated.",
        ),
    ] = None,
    time_limit: TimeLimitOption = DEFAULT_TIME_LIMIT_S,
    variant: VariantOption = None,
    mode: ModeOption = Mode.STRICT,
    device: DeviceOption = DEFAULT_DEVICE,
    seed: SeedOption = 0,
    json_output: JsonOption = False,
) -> None:
    """Find valid mappings: enumerate them, draw some at random, or count them all."""
    chosen = [name for name, given in (("--count", count), ("--sample", sample),
                                       ("--limit", limit is not None)) if given]  # fmt: skip
    if len(chosen) > 1:
        raise InputError(Problem("", "these options exclude each other", ", ".join(chosen), "one"))
    request = prepare(x, variant, mode, device)
    pins = read_pins(request.space, pin or ())
    if count:
        _count(request, pins, time_limit, json_output)
    elif sample is not None:
        found = _sampled(request, pins, sample, seed, time_limit)
        _write(request, found, json_output)
    else:
        # Tables are read by people, lines of JSON by programs, which want all of them.
        most = (0 if json_output else DEFAULT_LIMIT) if limit is None else limit
        if request.subject.nests and request.subject.program is None:
            _enumerate_mappings(request, pins, most or None, time_limit, json_output)
        else:
            _enumerate(request, pins, most or None, time_limit, seed, json_output)


def table_4(counts: dict[str, int]) -> dict[str, int]:
    """The numbers of constraint instances in the six kinds of CC'22, Table 4."""
    return {name: sum(counts.get(rule, 0) for rule in rules) for name, rules in TABLE_4}


def _write(request: Request, found: Iterator[Assignment], json_output: bool) -> int:
    number = 0
    with Progress("solving") as progress:
        for number, assignment in enumerate(found, 1):
            progress.update(number)
            if json_output:
                write_json(answer_to_json(request.subject, assignment))
            else:
                title = f"{request.subject.answer} {number}"
                write_mapping(request.subject, assignment, title)
    return number


def _enumerate(
    request: Request,
    pins: Assignment,
    limit: int | None,
    time_limit: float,
    seed: int,
    json_output: bool,
) -> None:
    # Loads the solver: half a second that --help and usage errors should not take.
    from mapper.solver.enumeration import enumerate_assignments

    try:
        found = enumerate_assignments(
            request.space, pins, limit=limit, time_limit_s=seconds_or_none(time_limit)
        )
    except LimitError as error:
        if limit is None:
            raise
        # Some spaces are too large for one model. Draws fix the parameters first.
        note(f"too large to enumerate, so these are drawn at random ({error.problems[0].message})")
        _write(request, _sampled(request, pins, limit, seed, time_limit), json_output)
        return
    with found:
        number = _write(request, found, json_output)
    _report_end(request, pins, number, limit, found.complete is True, time_limit)


def _enumerate_mappings(
    request: Request, pins: Assignment, limit: int | None, time_limit: float, json_output: bool
) -> None:
    """A bare nest tree: mappings, each once, whatever local sizes go with it."""
    from mapper.solver.counting import Mappings

    mappings = Mappings(request.space, pins, time_limit_s=seconds_or_none(time_limit))
    # One more than wanted is looked for, to know whether there are more.
    found = iter(mappings)
    number = _write(request, islice(found, limit), json_output)
    more = limit is not None and number == limit and next(found, None) is not None
    complete = not more and (mappings.complete or (limit is not None and number == limit))
    _report_end(request, pins, number, limit, complete, time_limit)


def _report_end(
    request: Request,
    pins: Assignment,
    number: int,
    limit: int | None,
    complete: bool,
    time_limit: float,
) -> None:
    if complete:
        if number == 0:
            raise UnsatisfiableError(_nothing(request, pins))
        return
    if limit is not None and number >= limit:
        note(f"there are more than these {number}: --limit 0 writes all, --count counts them")
        return
    raise LimitError(
        Problem(
            "", f"the time limit was reached before all {request.subject.answer}s were found",
            f"{number} in {time_limit:g} s", "", "--time-limit",
        )
    )  # fmt: skip


def _nothing(request: Request, pins: Assignment) -> Problem:
    pinned = ", ".join(f"{variable}={value}" for variable, value in pins.items())
    return Problem(
        request.subject.label,
        f"no {request.subject.answer} satisfies the constraints"
        + (" and the pins" if pins else ""),
        pinned,
        "",
        "fewer pins" if pins else "nestmap constraints lists them",
    )


def _sampled(
    request: Request, pins: Assignment, number: int, seed: int, time_limit: float
) -> Iterator[Assignment]:
    from mapper.solver.sampling import sample

    started = time.monotonic()
    given = 0
    try:
        for assignment in sample(request.space, number, seed, pins):
            yield assignment
            given += 1
            if given < number and time_limit and time.monotonic() - started > time_limit:
                raise LimitError(
                    Problem("", "the time limit was reached", f"{given} of {number} samples", "",
                            "--time-limit")
                )  # fmt: skip
    except UnsatisfiableError:
        raise UnsatisfiableError(_nothing(request, pins)) from None
    if given < number:
        note(f"there are no more than these {given}")


def _count(request: Request, pins: Assignment, time_limit: float, json_output: bool) -> None:
    from mapper.solver.counting import count_mappings

    with Progress("counting"):
        found = count_mappings(request.space, pins, time_limit_s=seconds_or_none(time_limit))
    counts = rule_counts(request.space, request.mode)
    rules = counts.constraints
    result: dict[str, object] = {
        "count" if found.complete else "at_least": found.mappings,
        "complete": found.complete,
        "mode": request.mode.value,
        "constraints": rules,
        "preferences": counts.preferences,
    }
    if request.mode is Mode.PAPER:
        result["table4"] = table_4(rules)
    if json_output:
        write_json(result)
    else:
        write_text(f"{'' if found.complete else 'at least '}{found.mappings} mappings")
        write_table(("rule", "constraints"), rules.items(), right=("constraints",))
        write_table(
            ("preference", "constraints"), counts.preferences.items(), right=("constraints",)
        )
        if request.mode is Mode.PAPER:
            kinds = table_4(rules)
            rows = [*kinds.items(), ("all six", sum(kinds.values()))]
            write_table(("CC'22, Table 4", "constraints"), rows, right=("constraints",))
    if not found.complete:
        note(f"not all mappings were counted within {time_limit:g} s: --time-limit gives more")
        raise typer.Exit(ExitCode.LIMIT)
