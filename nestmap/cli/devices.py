"""``nestmap devices``: OpenCL devices that are here, and profiles of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mapper.constraint_rules.rule import Mode
from mapper.errors import DeviceError, Problem
from mapper.profiles import load_profile, profile_names
from nestmap.cli.calibrate import calibrate
from nestmap.cli.output import note, write_json, write_table, write_text
from nestmap.cli.remote import TokenFileOption, UrlOption, asking, service_at
from nestmap.cli.request import JsonOption
from nestmap.cli.strikes import strike

if TYPE_CHECKING:
    from nestmap.client import Client
    from worker.devices.opencl import OpenClDevice

#: More are not read: a farm of that size has better ways to be looked at.
MOST_DEVICES = 10_000

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
app.command()(strike)


@app.callback(invoke_without_command=True)
def devices(
    context: typer.Context,
    device: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this profile, or this device (host, 0, nvidia)."),
    ] = None,
    # Every command takes these, so that scripts need not know which has no use for them.
    mode: Annotated[Mode, typer.Option(hidden=True)] = Mode.STRICT,
    seed: Annotated[int, typer.Option(hidden=True, min=0)] = 0,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json_output: JsonOption = False,
) -> None:
    """List the OpenCL devices of this machine and the shipped profiles, with their limits.

    With --url: the devices that measure for the service, and the profiles that it knows.
    """
    del mode, seed
    if context.invoked_subcommand is not None:
        return
    if (service := service_at(url, token_file)) is not None:
        with service, asking():
            _of_service(service, device, json_output)
        return
    # Loads the OpenCL library.
    from worker.devices.opencl import find_device, list_devices, profile_of, target_note
    from worker.devices.pocl_target import wheel_library
    from worker.devices.probed_target import check_setting

    is_profile = device in profile_names()
    names = [name for name in profile_names() if device is None or name == device]
    shipped = [asdict(load_profile(name)) for name in names]
    if not is_profile and wheel_library() is not None:
        # Asked for in vain, which is not a fault of the device's.
        check_setting()
    try:
        present = () if is_profile else list_devices()
        if device is not None and not is_profile:
            present = (find_device(device),)
        found = [
            {
                "index": item.index,
                "spec": item.spec,
                "platform": item.platform_name,
                "platform_version": item.platform_version,
                "kind": item.kind,
                "driver": item.driver_version,
                "target_note": target_note(item),
                **asdict(profile_of(item)),
            }
            for item in (_with_target(one, present) for one in present)
        ]
    except DeviceError as error:
        if device is not None:
            raise
        found = []
        for problem in error.problems:
            note(str(problem))
    from worker.devices import drivers

    if device is None and all(row["kind"] == "cpu" for row in found) and drivers.missing():
        note(drivers.missing())
    if json_output:
        write_json({"devices": found, "profiles": shipped})
        return
    heads, fields = _heads_and_fields()
    live = (("index", "index"), ("spec", "spec"), ("driver", "driver"), ("target", "target"))
    write_table(
        [head for head, _ in live] + list(heads),
        ([row[field] for _, field in live] + [row[field] for field in fields] for row in found),
        "OpenCL devices",
    )
    for row in found:
        if row["target_note"]:
            write_text(f"target of {row['index']}: {row['target']}, {row['target_note']}")
    _write_profiles(shipped)


def _with_target(device: OpenClDevice, present: Sequence[OpenClDevice]) -> OpenClDevice:
    """A device with its target; as it is, and a note, where none works: others are listed too."""
    from worker.devices.opencl import with_target

    try:
        return with_target(device, device.asked_target, present)
    except DeviceError as error:
        for problem in error.problems:
            note(str(problem))
        return device


def _of_service(service: Client, device: str | None, json_output: bool) -> None:
    profiles = [p for p in service.profiles() if device in (None, p["name"])]
    listed = islice(service.devices(), MOST_DEVICES)
    # A profile goes before a device of the same name, as it does without a service.
    only = device is not None and bool(profiles)
    found = [] if only else [d for d in listed if device in (None, d["id"], d["name"])]
    if device is not None and not (profiles or found):
        raise DeviceError(
            Problem("--device", "the service has no such device or profile", repr(device)[:200])
        )
    if json_output:
        write_json({"devices": found, "profiles": profiles})
        return
    write_table(
        ("id", "name", "profile", "target", "state", "last seen", "reason"),
        (
            (d["id"], d["name"], d["profile"] or "", d["facts"].get("device.target", ""),
             d["state"], d["last_seen"] or "never", d["reason"])
            for d in found
        ),
        "devices of the service",
    )  # fmt: skip
    _write_profiles(profiles)


def _write_profiles(profiles: Sequence[Mapping[str, Any]]) -> None:
    heads, fields = _heads_and_fields()
    write_table(
        ["name", *heads],
        ([row["name"], *(row[field] for field in fields)] for row in profiles),
        "profiles",
    )


def _heads_and_fields() -> tuple[tuple[str, ...], tuple[str, ...]]:
    heads, fields = zip(*_LIMITS, strict=True)
    return heads, fields
