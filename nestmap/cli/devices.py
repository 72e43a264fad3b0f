"""``nestmap devices``: OpenCL devices that are here, and profiles of others."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from mapper.constraint_rules.rule import Mode
from mapper.errors import DeviceError
from mapper.profiles import load_profile, profile_names
from nestmap.cli.calibrate import calibrate
from nestmap.cli.output import note, write_json, write_table
from nestmap.cli.request import JsonOption

_LIMITS = (
    ("work-group", "max_work_group_size"),
    ("local bytes", "local_bytes"),
    ("private bytes", "private_bytes"),
    ("buffer bytes", "max_alloc_bytes"),
    ("memory bytes", "global_bytes"),
    ("units", "compute_units"),
)


app = typer.Typer()
app.command()(calibrate)


@app.callback(invoke_without_command=True)
def devices(
    context: typer.Context,
    device: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this profile, or this device (host, opencl:…)."),
    ] = None,
    # Every command takes these, so that scripts need not know which has no use for them.
    mode: Annotated[Mode, typer.Option(hidden=True)] = Mode.STRICT,
    seed: Annotated[int, typer.Option(hidden=True, min=0)] = 0,
    json_output: JsonOption = False,
) -> None:
    """List the OpenCL devices of this machine and the shipped profiles, with their limits."""
    del mode, seed
    if context.invoked_subcommand is not None:
        return
    # Loads the OpenCL library.
    from worker.devices.opencl import list_devices, profile_of, select_device

    is_profile = device in profile_names()
    names = [name for name in profile_names() if device is None or name == device]
    shipped = [asdict(load_profile(name)) for name in names]
    try:
        present = () if is_profile else list_devices()
        if device is not None and not is_profile:
            present = (select_device(device, present),)
        found = [
            {
                "index": item.index,
                "spec": item.spec,
                "platform": item.platform_name,
                "platform_version": item.platform_version,
                "kind": item.kind,
                "driver": item.driver_version,
                **asdict(profile_of(item)),
            }
            for item in present
        ]
    except DeviceError as error:
        if device is not None:
            raise
        found = []
        for problem in error.problems:
            note(str(problem))
    if json_output:
        write_json({"devices": found, "profiles": shipped})
        return
    heads, fields = zip(*_LIMITS, strict=True)
    live = (("index", "index"), ("spec", "spec"), ("driver", "driver"))
    write_table(
        [head for head, _ in live] + list(heads),
        ([row[field] for _, field in live] + [row[field] for field in fields] for row in found),
        "OpenCL devices",
    )
    write_table(
        ["name", *heads],
        ([row["name"], *(row[field] for field in fields)] for row in shipped),
        "profiles",
    )
