"""``nestmap check``: is a mapping valid, and if not, what does it break?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from mapper.constraint_rules.rule import Mode
from mapper.pipeline import assignment_to_json
from mapper.solver.space import Violation
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
from nestmap.mappings import Verdict, judge, read_mapping
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
    time_limit: TimeLimitOption = DEFAULT_TIME_LIMIT_S,
    variant: VariantOption = None,
    mode: ModeOption = Mode.STRICT,
    device: DeviceOption = DEFAULT_DEVICE,
    seed: SeedOption = 0,
    json_output: JsonOption = False,
) -> None:
    """Say whether a mapping is valid, and which rules it breaks (exit code 1) if not."""
    del seed  # every command has it; nothing here is random
    request = prepare(x, variant, mode, device)
    verdict = judge_file(request, mapping, time_limit)
    _write(verdict, mode, json_output)
    if not verdict.valid:
        raise typer.Exit(ExitCode.NEGATIVE)


def judge_file(request: Request, name: str, time_limit: float) -> Verdict:
    """Read a mapping file and judge it in the space of the request."""
    given = read_mapping(request.space, read_bounded(name), request.mode)
    if given.ignored:
        note(f"paper mode knows no {' and no '.join(given.ignored)}: left out")
    with Progress("checking"):
        return judge(request.space, given.assignment, seconds_or_none(time_limit))


def violation_to_json(violation: Violation) -> dict[str, Any]:
    """A violation as a JSON value."""
    return {
        "rule": violation.rule,
        "maps": list(violation.maps),
        "buffer": violation.buffer,
        "sentence": violation.sentence,
        "remedy": violation.remedy,
        "constraint": violation.constraint,
    }


def _write(verdict: Verdict, mode: Mode, json_output: bool) -> None:
    assumed = assignment_to_json(verdict.assumed)
    del assumed["mapping"]
    if json_output:
        violations = [violation_to_json(violation) for violation in verdict.violations]
        write_json(
            {"valid": verdict.valid, "mode": mode.value, "violations": violations,
             "assumed": assumed}
        )  # fmt: skip
        return
    write_text("valid" if verdict.valid else f"invalid: {len(verdict.violations)} violations")
    for what, values in assumed.items():
        chosen = ", ".join(f"{name}={value}" for name, value in values.items())
        write_text(f"assumed {what.replace('_', ' ')}: {chosen}")
    if verdict.violations:
        rows = ((v.rule, ", ".join(map(str, v.maps)), v.sentence, v.remedy)
                for v in verdict.violations)  # fmt: skip
        write_table(("rule", "maps", "why", "remedy"), rows)
