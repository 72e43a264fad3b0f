"""``nestmap sketches``: the schedules worth having of a program on a device, with reasons."""

from __future__ import annotations

from typing import Annotated

import typer

from mapper.errors import InputError, Problem
from mapper.schedules.schedule_text import schedule_to_json, schedule_to_text
from mapper.schedules.sketches.derivation import sketches_of
from nestmap.cli.derive import HIGH_LEVEL
from nestmap.cli.output import write_json, write_table, write_text
from nestmap.cli.request import DeviceOption, JsonOption, VariantOption, XArgument
from nestmap.device_limits import DEFAULT_DEVICE, limits_of_device
from nestmap.subjects import load_subject


def sketches_command(
    x: XArgument,
    device: DeviceOption = DEFAULT_DEVICE,
    variant: VariantOption = None,
    show: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Print this one's schedule alone, which nestmap derive takes.",
            show_default=False,
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """List the schedules worth having of a program on a device, each with its reason."""
    limits = limits_of_device(device)
    program = load_subject(x, variant, default=HIGH_LEVEL).require_program()
    found = sketches_of(program, limits)
    if show is not None:
        wanted = next((s for s in found if s.name == show), None)
        if wanted is None:
            raise InputError(
                Problem("--show", "no sketch of this name", show, ", ".join(s.name for s in found))
            )
        if json_output:
            write_json(schedule_to_json(wanted.schedule))
        else:
            write_text(schedule_to_text(wanted.schedule))
        return
    if json_output:
        write_json(
            [
                {
                    "name": s.name,
                    "reason": s.reason,
                    "parameters": {p.name: list(p.values) for p in s.program.parameters},
                    "schedule": schedule_to_json(s.schedule),
                }
                for s in found
            ]
        )
        return
    write_table(
        ("sketch", "steps", "parameters", "why"),
        [(s.name, len(s.schedule.uses), len(s.program.parameters), s.reason) for s in found],
        right=("steps", "parameters"),
    )
