"""A device's health over time as series: a column for each reading that changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from db.farm.records import BoardFacts

#: What agents report that is worth a line, its unit, and what divides it for that unit.
_KNOWN: tuple[tuple[str, str, str, float], ...] = (
    ("temperature_c", "temperature", "°C", 1.0),
    ("load", "load", "", 1.0),
    ("memory_available_bytes", "free memory", "GiB", float(1 << 30)),
    ("throttled", "throttled", "", 1.0),
)
_CLOCK = "_clock_mhz"


@dataclass(frozen=True, slots=True)
class Reading:
    """One quantity over time; a value is None where it was not reported."""

    name: str
    unit: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class HistoryView:
    """Readings with the times at which they were taken, oldest first."""

    at: tuple[str, ...]
    readings: tuple[Reading, ...]

    def to_json(self) -> dict[str, Any]:
        """For the page's script."""
        return {
            "at": list(self.at),
            "readings": [
                {"name": one.name, "unit": one.unit, "values": list(one.values)}
                for one in self.readings
            ],
        }


def history_view(entries: Sequence[BoardFacts]) -> HistoryView:
    """The readings of a board's history that it has reported at least once."""
    readings = [
        Reading(name, unit, _values(entries, field, divisor))
        for field, name, unit, divisor in _KNOWN
    ]
    clocks = sorted({name for entry in entries for name in entry.facts if name.endswith(_CLOCK)})
    readings[1:1] = [
        Reading(f"{name.removesuffix(_CLOCK)} clock", "MHz", _values(entries, name, 1.0))
        for name in clocks
    ]
    return HistoryView(
        tuple(entry.at.isoformat() for entry in entries),
        tuple(one for one in readings if any(value is not None for value in one.values)),
    )


def _values(entries: Sequence[BoardFacts], name: str, divisor: float) -> tuple[float | None, ...]:
    found: list[float | None] = []
    for entry in entries:
        value = entry.facts.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found.append(value / divisor)
        else:
            found.append(None)
    return tuple(found)
