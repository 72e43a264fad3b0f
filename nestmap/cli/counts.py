"""How ``nestmap solve --count`` counts, and what it says."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import typer

from mapper.constraint_rules.rule import Mode
from mapper.errors import LimitError, Problem
from mapper.pipeline import rule_counts
from mapper.solver.space import Space
from nestmap.cli.exit_codes import ExitCode
from nestmap.cli.output import Progress, note, write_json, write_table, write_text
from nestmap.cli.request import Request, seconds_or_none

# The six kinds of CC'22, Table 4, and the rules that make up each in paper mode.
TABLE_4: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("private memory", ("private-memory-scoping",)),
    ("shared memory", ("shared-memory-scoping",)),
    ("duplicate scheduling", ("duplicate-scheduling",)),
    ("local thread indexing dimensionality", ("thread-dimensionality",)),
    ("local thread indexing hierarchy", ("local-hierarchy",)),
    ("exhaustive thread indexing", ("exhaustive-indexing",)),
)


def table_4(counts: dict[str, int]) -> dict[str, int]:
    """The numbers of constraint instances in the six kinds of CC'22, Table 4."""
    return {name: sum(counts.get(rule, 0) for rule in rules) for name, rules in TABLE_4}


def write_count(
    request: Request,
    space: Space,
    time_limit: float,
    json_output: bool,
    *,
    joint: bool,
    stratify: bool,
) -> None:
    """Count the space and write the number; exit code LIMIT if time did not suffice.

    ``joint`` counts assignments of codes, parameters and sizes instead of mappings; ``stratify``
    adds the number for each set of dimensions.
    """
    with Progress("counting"):
        number, complete = _count(space, time_limit, joint)
        strata: dict[str, int] | None = None
        if stratify and complete:
            strata = dict(_strata(space, time_limit, joint))
    if request.subject.tuning_space is not None:
        _write_configurations(request, number, complete, json_output)
    else:
        _write_mappings(request, number, complete, strata, joint, json_output)
    if not complete:
        note(f"not everything was counted within {time_limit:g} s: --time-limit gives more")
        raise typer.Exit(ExitCode.LIMIT)


def _count(space: Space, time_limit: float, joint: bool) -> tuple[int, bool]:
    # Loads the solver: half a second that --help and usage errors should not take.
    from mapper.solver.counting import count_assignments, count_mappings
    from mapper.solver.limits import SolveLimits, Watch

    watch = Watch(SolveLimits(time_s=seconds_or_none(time_limit)))
    if not joint:
        found = count_mappings(space, watch=watch)
        return found.mappings, found.complete
    try:
        return count_assignments(space, watch=watch), True
    except LimitError:
        if watch.left_s != 0:
            raise
        # At least as many as there are mappings, but these may take as long.
        return 0, False


def _strata(space: Space, time_limit: float, joint: bool) -> Iterator[tuple[str, int]]:
    from mapper.solver.strata import by_dimensions

    for dimensions, part in by_dimensions(space):
        number, complete = _count(part, time_limit, joint)
        if not complete:
            raise LimitError(
                Problem("--stratify", "the time limit was reached", f"{time_limit:g} s", "",
                        "--time-limit")
            )  # fmt: skip
        if number:
            yield " ".join(map(str, dimensions)) or "none", number


def _write_configurations(request: Request, number: int, complete: bool, json_output: bool) -> None:
    combinations = prod(len(domain) for _, domain in request.space.variables)
    constraints = len(request.space.constraints)
    if json_output:
        write_json(
            {"count" if complete else "at_least": number, "complete": complete,
             "combinations": combinations, "constraints": {"space": constraints}}
        )  # fmt: skip
        return
    write_text(f"{number} configurations of {combinations}, {constraints} constraints")


def _write_mappings(
    request: Request,
    number: int,
    complete: bool,
    strata: dict[str, int] | None,
    joint: bool,
    json_output: bool,
) -> None:
    counts = rule_counts(request.space, request.mode)
    rules = counts.constraints
    if json_output:
        result: dict[str, object] = {
            "count" if complete else "at_least": number,
            "of": "assignments" if joint else "mappings",
            "complete": complete,
            "mode": request.mode.value,
            "constraints": rules,
            "preferences": counts.preferences,
        }
        if strata is not None:
            result["by_dimensions"] = strata
        if request.mode is Mode.PAPER:
            result["table4"] = table_4(rules)
        write_json(result)
        return
    what = "assignments of schedules, parameters and local sizes" if joint else "mappings"
    write_text(f"{'' if complete else 'at least '}{number} {what}")
    if strata is not None:
        write_table(("dimensions used", what.split(" ")[0]), strata.items(),
                    right=(what.split(" ")[0],))  # fmt: skip
    write_table(("rule", "constraints"), rules.items(), right=("constraints",))
    write_table(("preference", "constraints"), counts.preferences.items(), right=("constraints",))
    if request.mode is Mode.PAPER:
        kinds = table_4(rules)
        rows = [*kinds.items(), ("all six", sum(kinds.values()))]
        write_table(("CC'22, Table 4", "constraints"), rows, right=("constraints",))
