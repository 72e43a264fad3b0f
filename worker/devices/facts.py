"""Facts about a device and the state of its machine, stored with every measurement."""

from __future__ import annotations

import os
from pathlib import Path

from worker.devices.opencl import OpenClDevice

#: Where Linux shows what changes between measurements, by fact name. Globs, because the
#: number of thermal zones and the name of a GPU's devfreq node differ from board to board.
_STATE_FILES: tuple[tuple[str, str], ...] = (
    ("cpu.governor", "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    ("cpu.clock_khz", "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"),
    ("cpu.throttle_count", "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count"),
    ("cpu.load", "proc/loadavg"),
    ("thermal.{}.millicelsius", "sys/class/thermal/thermal_zone*/temp"),
    ("devfreq.{}.governor", "sys/class/devfreq/*/governor"),
    ("devfreq.{}.clock_hz", "sys/class/devfreq/*/cur_freq"),
)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        # Some sensors exist but refuse to be read while the device sleeps.
        return ""


def machine_state(root: Path = Path("/")) -> dict[str, str]:
    """Governor, clocks, temperatures, throttle counts and load, where Linux shows them."""
    state: dict[str, str] = {}
    for name, pattern in _STATE_FILES:
        for path in sorted(root.glob(pattern)):
            if text := _read(path):
                state[name.format(path.parent.name)] = text
    return state


def cpu_model(root: Path = Path("/")) -> str:
    """The CPU's name as Linux shows it; empty where it does not (many Arm boards)."""
    for line in _read(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Hardware"):
            return value.strip()
    return _read(root / "proc/device-tree/model").rstrip("\0")


def device_facts(device: OpenClDevice, root: Path = Path("/")) -> dict[str, str]:
    """What identifies the device and its machine, and the state it is in now.

    Keys are dotted names; values are texts as driver and system show them.
    """
    facts = {
        "device.name": device.device_name,
        "device.version": device.device_version,
        "device.kind": device.kind,
        "device.max_clock_mhz": str(device.handle.max_clock_frequency),
        "device.compute_units": str(device.handle.max_compute_units),
        "driver.version": device.driver_version,
        "platform.name": device.platform_name,
        "platform.version": device.platform_version,
        "system": " ".join(os.uname()[index] for index in (0, 2, 4)),
        "cpu.model": cpu_model(root),
        "cpu.cores_allowed": str(len(os.sched_getaffinity(0))),
        **machine_state(root),
    }
    return {key: value for key, value in facts.items() if value}
