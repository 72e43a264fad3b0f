"""What changes from minute to minute on the board, where Linux shows it."""

from __future__ import annotations

import os
from pathlib import Path

_MOST_SENSORS = 32


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text(errors="replace").split()[0])
    except (OSError, ValueError, IndexError):
        # Some sensors exist but refuse to be read while what they watch sleeps.
        return None


def machine_health(root: Path = Path("/")) -> dict[str, float]:
    """Temperatures in °C, clocks in MHz, load, free memory in bytes, seconds since boot.

    The hottest zone is ``temperature_c``; ``throttled`` is 1 while a cooling device is active.
    """
    found: dict[str, float | None] = {}
    zones = [_number(path) for path in sorted(root.glob("sys/class/thermal/thermal_zone*/temp"))][
        :_MOST_SENSORS
    ]
    celsius = [zone / 1000 for zone in zones if zone is not None]
    found["temperature_c"] = max(celsius) if celsius else None
    cooling = [
        _number(path) for path in sorted(root.glob("sys/class/thermal/cooling_device*/cur_state"))
    ][:_MOST_SENSORS]
    if cooling:
        found["throttled"] = float(any(state for state in cooling))
    khz = _number(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")
    found["cpu_clock_mhz"] = khz / 1000 if khz is not None else None
    for path in sorted(root.glob("sys/class/devfreq/*/cur_freq"))[:_MOST_SENSORS]:
        hz = _number(path)
        found[f"{path.parent.name[:40]}_clock_mhz"] = hz / 1e6 if hz is not None else None
    found["load"] = _number(root / "proc/loadavg")
    found["uptime_s"] = _number(root / "proc/uptime")
    found["memory_available_bytes"] = _memory_available(root)
    return {name: value for name, value in found.items() if value is not None}


def _memory_available(root: Path) -> float | None:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return float(rest.split()[0]) * 1024
    return None


def machine_facts() -> dict[str, str]:
    """What identifies the machine whatever device it measures on."""
    name = os.uname()
    return {"system": f"{name.sysname} {name.release} {name.machine}", "host": name.nodename}
