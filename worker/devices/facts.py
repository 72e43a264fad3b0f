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
    # Boards with cores of several kinds have a policy for each kind.
    ("cpufreq.{}.governor", "sys/devices/system/cpu/cpufreq/policy*/scaling_governor"),
    ("cpufreq.{}.clock_khz", "sys/devices/system/cpu/cpufreq/policy*/scaling_cur_freq"),
    ("thermal.{}.millicelsius", "sys/class/thermal/thermal_zone*/temp"),
    # Above 0 while heat slows something down.
    ("cooling.{}.state", "sys/class/thermal/cooling_device*/cur_state"),
    ("firmware.throttled", "sys/devices/platform/soc/soc:firmware/get_throttled"),
    ("mali.gpuinfo", "sys/class/misc/mali0/device/gpuinfo"),
    ("devfreq.{}.governor", "sys/class/devfreq/*/governor"),
    ("devfreq.{}.clock_hz", "sys/class/devfreq/*/cur_freq"),
)
#: A sensor that says more is none.
_MOST_CHARACTERS = 200


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        # Some sensors exist but refuse to be read while the device sleeps.
        return ""


def machine_state(root: Path = Path("/")) -> dict[str, str]:
    """Governor, clocks, temperatures, throttling, load and free memory, where Linux shows them."""
    state: dict[str, str] = {}
    for name, pattern in _STATE_FILES:
        for path in sorted(root.glob(pattern)):
            if text := _read(path):
                state[name.format(path.parent.name)] = text[:_MOST_CHARACTERS]
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            state["memory.available"] = line.partition(":")[2].strip()
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
        "device.target": device.target,
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
