"""Lines for a shell that repeat what a page shows, or measure what it lacks."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any


def kernel_command(
    subject: Mapping[str, Any],
    variant: str,
    mode: str,
    device: str | Mapping[str, Any],
    chosen: Mapping[str, Any],
) -> str:
    """A here-document with what was chosen, and the ``nestmap kernel`` that prints it.

    A subject without a name and a device without a profile's name become files as well.
    """
    lines = [_file("candidate.json", chosen)]
    name = subject.get("name")
    if not isinstance(name, str):
        name = "subject.json"
        lines.insert(0, _file(name, subject["document"]))
    command = ["nestmap", "kernel", name, "candidate.json"]
    if variant:
        command += ["--variant", variant]
    if mode != "strict":
        command += ["--mode", mode]
    # The limits of a device by name; of one that is described, those of this host's.
    command += ["--device", device if isinstance(device, str) else "host"]
    lines.append(shlex.join([*command, "--out", "kernel.cl"]))
    return "\n".join(lines)


def baseline_commands(
    subject: Mapping[str, Any],
    variants: Sequence[str],
    device_id: str,
    candidates: int,
    url: str,
) -> str:
    """For each variant a ``nestmap tune`` that measures a layer on a device of the service. They
    are runs of their own: what is slow to solve holds up no other."""
    lines: list[str] = []
    name = subject.get("name")
    if not isinstance(name, str):
        name = "layer.json"
        lines.append(_file(name, subject["document"]))
    for variant in variants:
        command = ["nestmap", "tune", name, "--url", url, "--device", device_id]
        command += ["--variant", variant, "--candidates", str(candidates)]
        lines.append(shlex.join(command))
    return "\n".join(lines)


def _file(name: str, value: Any) -> str:
    return f"cat > {name} <<'END'\n{json.dumps(value)}\nEND"
