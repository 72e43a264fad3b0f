"""``nestmap solve``: enumerate, sample or count the valid mappings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from mapper.constraint_rules.predicate import Assignment
from mapper.constraint_rules.rule import Mode
from mapper.errors import InputError, LimitError, Problem
from mapper.pipeline import AnswerTexts
from mapper.solver.limits import Watch
from mapper.solver.restrictions import narrowed
from nestmap.cli.counts import write_count
from nestmap.cli.drawing import write_mapping
from nestmap.cli.output import Progress, note, write_line
from nestmap.cli.predictions import refuse_with_best, write_best
from nestmap.cli.remote import TokenFileOption, UrlOption, refuse_remote, service_at
from nestmap.cli.request import (
    DEFAULT_MEMORY_LIMIT_MIB,
    DEFAULT_TIME_LIMIT_S,
    DeviceOption,
    ForbidOption,
    FreeGridOption,
    JsonOption,
    MemoryLimitOption,
    ModeOption,
    PinOption,
    PreferOption,
    ReplicatePrivateOption,
    SeedOption,
    SequentialFusionOption,
    SuitsOption,
    TimeLimitOption,
    VariantOption,
    WhereOption,
    XArgument,
    limits_of,
    prepare,
    seconds_or_none,
    stated_by,
)
from nestmap.cli.solving import Here, Source
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
    best: Annotated[
        int | None,
        typer.Option(
            help="Find so many that the analytic model predicts to be the fastest, and what none "
            "is predicted below.",
            min=1,
            max=1000,
            metavar="K",
        ),
    ] = None,
    constants: Annotated[
        Path | None,
        typer.Option(
            help="--best: the model's constants, as `nestmap devices calibrate --out` writes."
        ),
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
    """Find valid mappings: enumerate them, draw some at random, or count them all."""
    chosen = [name for name, given in (("--count", count), ("--sample", sample), ("--best", best),
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
    if constants is not None and best is None:
        raise InputError(Problem("--constants", "say what to predict with", "", "with --best"))
    if best is not None:
        refuse_with_best(prefer=prefer, up_to_symmetry=up_to_symmetry)
    stated = stated_by(suits, sequential_fusion, replicate_private, free_grid, where)
    whole = request = prepare(x, variant, mode, device, stated)
    restrictions = read_restrictions(request.space, pin or (), forbid or (), prefer or ())
    if (stratify or up_to_symmetry) and not request.subject.nests:
        option = "--stratify" if stratify else "--up-to-symmetry"
        raise InputError(Problem(option, "a tuning space has no dimensions"))
    with ExitStack() as stack:
        if (service := service_at(url, token_file)) is None:
            if up_to_symmetry:
                from nestmap.finding import without_symmetric

                request = replace(request, space=without_symmetric(request, request.space))
            request = replace(request, restrictions=restrictions)
            space = narrowed(request.space, restrictions)
            source: Source = Here(request, space, Watch(limits_of(time_limit, memory_limit)))
        else:
            from nestmap.cli.remote_solving import There

            refuse_remote(
                memory_limit=None if memory_limit == DEFAULT_MEMORY_LIMIT_MIB else memory_limit,
            )
            stack.enter_context(service)
            request = replace(request, restrictions=restrictions)
            source = There(
                service, request, time_limit, pin or (), forbid or (), prefer or (), up_to_symmetry
            )
        if count:
            with Progress("counting"):
                counted = source.count(joint, stratify)
            write_count(whole, counted, seconds_or_none(time_limit), json_output, joint)
        elif best is not None:
            write_best(request, source, best, constants, seed, json_output)
        elif sample is not None:
            _write(request, source.sample(sample, seed, joint, stratify), json_output)
        else:
            # Tables are read by people, lines of JSON by programs, which want all of them.
            most = (0 if json_output else DEFAULT_LIMIT) if limit is None else limit
            number = _write(request, source.enumerate(most or None, seed), json_output)
            if source.complete is False:
                _report_end(request, number, most or None, time_limit)


def _write(request: Request, found: Iterator[Assignment], json_output: bool) -> int:
    number = 0
    texts = AnswerTexts(request.subject)
    with Progress("solving") as progress:
        for number, assignment in enumerate(found, 1):
            progress.update(number)
            if json_output:
                write_line(texts.of(assignment))
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


def _report_end(request: Request, number: int, limit: int | None, time_limit: float) -> None:
    """Say why these were not all."""
    if limit is not None and number >= limit:
        note(f"there are more than these {number}: --limit 0 writes all, --count counts them")
        return
    raise LimitError(
        Problem(
            "", f"the time limit was reached before all {request.subject.answer}s were found",
            f"{number} in {time_limit:g} s", "", "--time-limit",
        )
    )  # fmt: skip
