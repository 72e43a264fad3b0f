"""``nestmap solve``: enumerate, sample or count the valid mappings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Annotated

import typer

from mapper.constraint_rules.rule import Mode
from mapper.errors import InputError, LimitError, Problem
from mapper.pipeline import Assignment, answer_to_json
from mapper.solver.limits import Watch
from mapper.solver.restrictions import narrowed
from mapper.solver.space import Space
from nestmap.cli.counts import write_count
from nestmap.cli.drawing import write_mapping
from nestmap.cli.explanations import explained
from nestmap.cli.output import Progress, note, write_json
from nestmap.cli.request import (
    DEFAULT_MEMORY_LIMIT_MIB,
    DEFAULT_TIME_LIMIT_S,
    DeviceOption,
    ForbidOption,
    JsonOption,
    MemoryLimitOption,
    ModeOption,
    PinOption,
    PreferOption,
    SeedOption,
    TimeLimitOption,
    VariantOption,
    XArgument,
    limits_of,
    prepare,
)
from nestmap.device_limits import DEFAULT_DEVICE
from nestmap.requests import Request
from nestmap.restrictions import read_restrictions

DEFAULT_LIMIT = 10


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
    pin: PinOption = None,
    forbid: ForbidOption = None,
    prefer: PreferOption = None,
    joint: Annotated[
        bool,
        typer.Option(
            "--joint",
            help="Count or draw assignments of schedules, parameters and local sizes together, "
            "each equally likely, instead of mappings.",
        ),
    ] = False,
    stratify: Annotated[
        bool,
        typer.Option(
            "--stratify", help="Count, or draw equally many, for each set of dimensions used."
        ),
    ] = False,
    up_to_symmetry: Annotated[
        bool,
        typer.Option(
            "--up-to-symmetry",
            help="Of mappings that differ by permuted dimensions, take the one that uses 0 "
            "before 1 before 2.",
        ),
    ] = False,
    time_limit: TimeLimitOption = DEFAULT_TIME_LIMIT_S,
    memory_limit: MemoryLimitOption = DEFAULT_MEMORY_LIMIT_MIB,
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
    if (joint or stratify) and not (count or sample is not None):
        raise InputError(
            Problem("--joint, --stratify", "say what is counted or drawn", "",
                    "with --count or --sample")
        )  # fmt: skip
    if prefer and (count or sample is not None):
        raise InputError(
            Problem("--prefer", "preferences order what is enumerated: they change neither a "
                    "count nor a sample", chosen[0], "--limit")
        )  # fmt: skip
    whole = request = prepare(x, variant, mode, device)
    restrictions = read_restrictions(request.space, pin or (), forbid or (), prefer or ())
    if (stratify or up_to_symmetry) and not request.subject.nests:
        option = "--stratify" if stratify else "--up-to-symmetry"
        raise InputError(Problem(option, "a tuning space has no dimensions"))
    if up_to_symmetry:
        from nestmap.finding import without_symmetric

        request = replace(request, space=without_symmetric(request, request.space))
    request = replace(request, restrictions=restrictions)
    space = narrowed(request.space, restrictions)
    watch = Watch(limits_of(time_limit, memory_limit))
    if count:
        write_count(whole, space, watch, json_output, joint=joint, stratify=stratify)
    elif sample is not None:
        draw = _stratified if stratify else _sampled
        _write(request, draw(request, space, sample, seed, watch, joint), json_output)
    else:
        # Tables are read by people, lines of JSON by programs, which want all of them.
        most = (0 if json_output else DEFAULT_LIMIT) if limit is None else limit
        if prefer:
            _enumerate_preferred(request, most or None, watch, json_output)
        elif request.is_tree or request.subject.tuning_space is not None:
            _enumerate_mappings(request, space, most or None, watch, json_output)
        else:
            _enumerate(request, space, most or None, watch, seed, json_output)


def _write(request: Request, found: Iterator[Assignment], json_output: bool) -> int:
    number = 0
    with Progress("solving") as progress:
        for number, assignment in enumerate(found, 1):
            progress.update(number)
            if json_output:
                write_json(answer_to_json(request.subject, assignment))
            else:
                title = f"{request.subject.answer} {number}{_score(request, assignment)}"
                write_mapping(request.subject, assignment, title)
    return number


def _score(request: Request, assignment: Assignment) -> str:
    """How well the preferences are met; of a tree's mapping alone that may not be known."""
    preferred = request.restrictions.preferred
    if not preferred or any(variable not in assignment for variable, _ in preferred):
        return ""
    return f", preferences met {request.restrictions.score(assignment)}"


def _enumerate(
    request: Request,
    space: Space,
    limit: int | None,
    watch: Watch,
    seed: int,
    json_output: bool,
) -> None:
    # Loads the solver: half a second that --help and usage errors should not take.
    from mapper.solver.enumeration import enumerate_assignments

    try:
        found = enumerate_assignments(
            space,
            request.restrictions.pins,
            limit=limit,
            time_limit_s=watch.left_s,
            memory_bytes=watch.limits.memory_bytes,
        )
    except LimitError as error:
        if limit is None or watch.left_s == 0:
            raise
        # Some spaces are too large for one model. Draws fix the parameters first.
        note(f"too large to enumerate, so these are drawn at random ({error.problems[0].message})")
        _write(request, _sampled(request, space, limit, seed, watch, False), json_output)
        return
    with found:
        number = _write(request, found, json_output)
    _report_end(request, number, limit, found.complete is True, watch)


def _enumerate_mappings(
    request: Request, space: Space, limit: int | None, watch: Watch, json_output: bool
) -> None:
    """A bare nest tree: mappings, each once, whatever local sizes go with it."""
    from mapper.solver.counting import Mappings

    pins = request.restrictions.pins
    mappings = Mappings(space, pins, watch=watch)
    # One more than wanted is looked for, to know whether there are more.
    found = iter(mappings)
    number = _write(request, islice(found, limit), json_output)
    more = limit is not None and number == limit and next(found, None) is not None
    complete = not more and (mappings.complete or (limit is not None and number == limit))
    _report_end(request, number, limit, complete, watch)


def _enumerate_preferred(
    request: Request, limit: int | None, watch: Watch, json_output: bool
) -> None:
    """Everything by descending preference."""
    from nestmap.finding import by_preference

    found = by_preference(request, watch)
    number = _write(request, islice(found, limit), json_output)
    complete = limit is None or number < limit or next(found, None) is None
    _report_end(request, number, limit, complete, watch)


def _report_end(
    request: Request, number: int, limit: int | None, complete: bool, watch: Watch
) -> None:
    if complete:
        if number == 0:
            raise explained(request, watch.limits.time_s)
        return
    if limit is not None and number >= limit:
        note(f"there are more than these {number}: --limit 0 writes all, --count counts them")
        return
    raise _out_of_time(request, number, watch)


def _out_of_time(request: Request, number: int, watch: Watch) -> LimitError:
    return LimitError(
        Problem(
            "", f"the time limit was reached before all {request.subject.answer}s were found",
            f"{number} in {watch.limits.time_s:g} s", "", "--time-limit",
        )
    )  # fmt: skip


def _sampled(
    request: Request, space: Space, number: int, seed: int, watch: Watch, joint: bool
) -> Iterator[Assignment]:
    from nestmap.finding import drawn

    given = 0
    for assignment in drawn(request, space, number, seed, joint, watch, _note_diverse):
        yield assignment
        given += 1
    if given < number:
        note(f"there are no more than these {given}")


def _stratified(
    request: Request, space: Space, number: int, seed: int, watch: Watch, joint: bool
) -> Iterator[Assignment]:
    """As many from each stratum as from the next, as far as they have as many."""
    from nestmap.finding import drawn_by_strata

    given = 0
    for assignment in drawn_by_strata(request, space, number, seed, joint, watch, _note_diverse):
        yield assignment
        given += 1
    if given < number:
        note(f"these are {given}: some sets of dimensions have no more")


def _note_diverse(error: LimitError) -> None:
    problem = error.problems[0]
    note(f"too large for uniform samples, so these are diverse and not uniform ({problem})")
