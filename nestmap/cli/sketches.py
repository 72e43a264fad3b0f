"""``nestmap sketches``: the schedules worth having of a program on a device, with reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from mapper.ast_model.codec import program_to_json
from mapper.errors import InputError, Problem
from mapper.schedules.sketches.derivation import sketches_of
from nestmap.cli.output import write_json, write_table, write_text
from nestmap.cli.remote import TokenFileOption, UrlOption, asking, device_json, service_at
from nestmap.cli.request import DeviceOption, JsonOption, VariantOption, XArgument
from nestmap.derivations import HIGH_LEVEL, sketch_to_json
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
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json_output: JsonOption = False,
) -> None:
    """List the schedules worth having of a program on a device, each with its reason."""
    limits = limits_of_device(device)
    program = load_subject(x, variant, default=HIGH_LEVEL).require_program()
    found: Sequence[Mapping[str, Any]]
    if (service := service_at(url, token_file)) is None:
        found = [sketch_to_json(sketch) for sketch in sketches_of(program, limits)]
    else:
        subject = {"document": program_to_json(program)}
        with service, asking():
            found = service.sketches(subject, device=device_json(limits))["items"]
    if show is not None:
        wanted = next((s for s in found if s["name"] == show), None)
        if wanted is None:
            names = ", ".join(s["name"] for s in found)
            raise InputError(Problem("--show", "no sketch of this name", show, names))
        if json_output:
            write_json(wanted["schedule"])
        else:
            write_text(wanted["text"])
        return
    if json_output:
        names = ("name", "reason", "parameters", "schedule")
        write_json([{name: s[name] for name in names} for s in found])
        return
    write_table(
        ("sketch", "steps", "parameters", "why"),
        [(s["name"], s["steps"], len(s["parameters"]), s["reason"]) for s in found],
        right=("steps", "parameters"),
    )
