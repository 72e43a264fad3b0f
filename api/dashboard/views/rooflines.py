"""A device's roofs from the constants of the cost model (Williams, Waterman and Patterson,
"Roofline", CACM 52(4), 2009): what it computes at most, and what its memory brings at most.

The constants are nanoseconds for one operation of a lane and for one byte fetched by a compute
unit, so that all units together give the roofs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from db.farm.fronts import StudiedPoint
from mapper.profiles import load_profile


@dataclass(frozen=True, slots=True)
class Roofs:
    """In operations and bytes a second; None where the fit gives it no cost, so that measured
    kernels do not show where the roof is."""

    operations_per_s: float | None
    bytes_per_s: float | None


def roofs(constants: Mapping[str, float], compute_units: int) -> Roofs:
    """The roofs of a device with so many compute units."""
    operation_ns, byte_ns = constants["operations"], constants["global_bytes"]
    lanes = constants["lanes"]
    return Roofs(
        compute_units * lanes / operation_ns * 1e9 if operation_ns > 0 else None,
        compute_units / byte_ns * 1e9 if byte_ns > 0 else None,
    )


def compute_units_of(profile: str | Mapping[str, Any]) -> int:
    """Of a profile by name or by its fields; 1 where a device has not said."""
    if isinstance(profile, str):
        return load_profile(profile).compute_units
    units = profile.get("compute_units")
    return units if isinstance(units, int) and units > 0 else 1


def attained(
    kernels: Sequence[StudiedPoint], operations: int, *, baseline: bool = False
) -> list[dict[str, Any]]:
    """Each kernel with its rate, and its operations for each byte that it allocates. Every
    allocated byte is moved once at least, so that the true intensity is no higher."""
    return [
        {
            "candidate": point.candidate_id,
            "time_ms": point.time_ms,
            "memory_bytes": point.memory_bytes,
            "variant": point.variant or "program",
            "per_byte": operations / point.memory_bytes,
            "per_s": operations / point.time_ms * 1e3,
            "baseline": baseline,
        }
        for point in kernels
        if point.memory_bytes > 0 and point.time_ms > 0
    ]
