"""What ``nestmap solve --count`` says."""

from __future__ import annotations

from math import prod

import typer

from mapper.constraint_rules.rule import Mode
from nestmap.answers import constraint_counts
from nestmap.cli.exit_codes import ExitCode
from nestmap.cli.output import note, write_json, write_table, write_text
from nestmap.cli.solving import Counted
from nestmap.requests import Request


def write_count(
    request: Request, found: Counted, time_limit_s: float | None, json_output: bool, joint: bool
) -> None:
    """Write a number of mappings, or of assignments (``joint``), of everything that a request
    is about; exit code LIMIT if time did not suffice."""
    if request.subject.tuning_space is not None:
        _write_configurations(request, found.number, found.complete, json_output)
    else:
        _write_mappings(request, found.number, found.complete, found.strata, joint, json_output)
    if not found.complete:
        within = "" if time_limit_s is None else f" within {time_limit_s:g} s"
        note(f"not everything was counted{within}: --time-limit gives more")
        raise typer.Exit(ExitCode.LIMIT)


def _write_configurations(request: Request, number: int, complete: bool, json_output: bool) -> None:
    combinations = prod(len(domain) for _, domain in request.space.variables)
    constraints = len(request.space.constraints)
    if json_output:
        write_json(
            {"count" if complete else "at_least": number, "complete": complete,
             "combinations": combinations, "constraints": {"space": constraints}}
        )  # fmt: skip
        return
    least = "" if complete else "at least "
    write_text(f"{least}{number} configurations of {combinations}, {constraints} constraints")


def _write_mappings(
    request: Request,
    number: int,
    complete: bool,
    strata: dict[str, int] | None,
    joint: bool,
    json_output: bool,
) -> None:
    counts = constraint_counts(request)
    if json_output:
        result: dict[str, object] = {
            "count" if complete else "at_least": number,
            "of": "assignments" if joint else "mappings",
            "complete": complete,
            "mode": request.mode.value,
            **counts,
            **request.variant(),
        }
        if strata is not None:
            result["by_dimensions"] = strata
        write_json(result)
        return
    what = "assignments of schedules, parameters and local sizes" if joint else "mappings"
    write_text(f"{'' if complete else 'at least '}{number} {what}")
    if strata is not None:
        write_table(("dimensions used", what.split(" ")[0]), strata.items(),
                    right=(what.split(" ")[0],))  # fmt: skip
    rules, preferences = counts["constraints"], counts["preferences"]
    write_table(("rule", "constraints"), rules.items(), right=("constraints",))
    write_table(("preference", "constraints"), preferences.items(), right=("constraints",))
    if request.mode is Mode.PAPER:
        kinds = counts["table4"]
        rows = [*kinds.items(), ("all six", sum(kinds.values()))]
        write_table(("CC'22, Table 4", "constraints"), rows, right=("constraints",))
