"""``nestmap devices``: OpenCL devices that are here, and profiles of others."""

from __future__ import annotations

from dataclasses import asdict

from mapper.errors import DeviceError
from mapper.profiles import load_profile, profile_names
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


def devices(json_output: JsonOption = False) -> None:
    """List the OpenCL devices of this machine and the shipped profiles, with their limits."""
    # Loads the OpenCL library.
    from worker.devices.opencl import list_devices, profile_of

    shipped = [asdict(load_profile(name)) for name in profile_names()]
    try:
        found = [
            {
                "index": device.index,
                "spec": device.spec,
                "platform": device.platform_name,
                "platform_version": device.platform_version,
                "kind": device.kind,
                "driver": device.driver_version,
                **asdict(profile_of(device)),
            }
            for device in list_devices()
        ]
    except DeviceError as error:
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
