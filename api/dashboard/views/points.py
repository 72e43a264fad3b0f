"""A run's measured candidates as its page's scripts want them: columns, not objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.dashboard.formats import SPACE, spelled
from api.dashboard.views.trials import distribution
from db.farm.overviews import Cloud
from db.farm.run_records import OwnedStudy
from db.records import CandidateRecord, StoredMeasurement
from mapper.errors import InputError, Problem
from mapper.measurement import Timed
from mapper.schedule import ScheduleCode, code_name

MOST_CONDITIONS = 50


def cloud_columns(cloud: Cloud, studies: Sequence[OwnedStudy]) -> dict[str, Any]:
    """Points as columns; ``study`` counts from 0 in ``studies``. Times in ms, sizes in bytes."""
    place = {study.study_id: number for number, study in enumerate(studies)}
    return {
        "studies": [
            {"variant": study.variant or "program", "device": study.device.name}
            for study in studies
        ],
        "id": [point.measurement_id for point in cloud.points],
        "study": [place.get(point.study_id, 0) for point in cloud.points],
        "time": [point.time_ms for point in cloud.points],
        "memory": [point.memory_bytes for point in cloud.points],
        "candidate": [point.candidate_id for point in cloud.points],
        "front": list(cloud.front),
        "total": cloud.total,
        "newest": cloud.newest,
    }


def detail(
    stored: StoredMeasurement, candidate: CandidateRecord, study: OwnedStudy
) -> dict[str, Any]:
    """A row of the table, and what hovering shows. ``low_ms`` and ``high_ms`` hold the true
    median with ``coverage``; ``spread`` is the interquartile range over the median."""
    row: dict[str, Any] = {
        "id": stored.id,
        "candidate": stored.candidate_id,
        "memory_bytes": stored.memory_bytes,
        "variant": study.variant or "program",
        "device": study.device.name,
        "parameters": dict(candidate.parameters),
        "mapping": mapping_text(candidate.mapping),
        "local_sizes": spelled(candidate.local_sizes),
        "at": stored.started_at.isoformat(),
        "outcome": "timed" if isinstance(stored.outcome, Timed) else "failed",
    }
    if isinstance(stored.outcome, Timed):
        found = distribution(stored.outcome.times_ns)
        row |= {
            "time_ms": found.median_ms,
            "low_ms": found.interval.low_ms,
            "high_ms": found.interval.high_ms,
            "coverage": found.interval.coverage,
            "spread": found.spread,
            "trials": len(found.trials_ms),
            "error": _finite(stored.outcome.max_relative_error),
            "clocks": clocks_text(stored.outcome.facts),
        }
    return row


def mapping_text(mapping: object) -> str:
    """What runs in parallel or in vectors: ``28 W0, 29 G1``; sequential maps are left out."""
    if not isinstance(mapping, Mapping):
        return spelled(mapping)
    return ", ".join(
        f"{name} {code_name(code)}"
        for name, code in mapping.items()
        if code not in (ScheduleCode.SEQUENTIAL, ScheduleCode.FUSED)
    )


def clocks_text(facts: Mapping[str, str]) -> str:
    """The clocks at the measurement where the machine shows them, else the device's highest."""
    found: list[str] = []
    for name, value in facts.items():
        scale = {"clock_khz": 1e6, "clock_hz": 1e9}.get(name.rpartition(".")[2])
        if scale is not None and value.isdigit():
            found.append(f"{name.rpartition('.')[0]} {int(value) / scale:.2f}{SPACE}GHz")
    most = facts.get("device.max_clock_mhz", "")
    if not found and most.isdigit() and int(most):
        found.append(f"at most {int(most) / 1000:.2f}{SPACE}GHz")
    return ", ".join(found[:4])


def _finite(value: float) -> float | None:
    return value if value == value and abs(value) != float("inf") else None


def axes(found: Sequence[tuple[int, CandidateRecord]]) -> dict[str, Any]:
    """Parameters as columns for parallel coordinates, of measurements with their candidates.

    A parameter that one variant lacks is null there; one that never differs is left out.
    """
    names = sorted({name for _, candidate in found for name in candidate.parameters})
    columns: dict[str, list[Any]] = {
        name: [candidate.parameters.get(name) for _, candidate in found] for name in names
    }
    columns["work-items"] = [_largest_group(candidate.local_sizes) for _, candidate in found]
    return {
        "id": [measurement_id for measurement_id, _ in found],
        "axes": [
            {"name": name, "values": values}
            for name, values in columns.items()
            if len({value for value in values if value is not None}) > 1
        ],
    }


@dataclass(frozen=True, slots=True)
class Condition:
    """One of ``allowed`` for a map's schedule or a parameter, as ``28=W0,W1`` or ``theta=4``."""

    name: str
    allowed: frozenset[str]

    def holds(self, candidate: CandidateRecord) -> bool:
        """Whether a candidate meets it; one that has nothing of the name does not."""
        mapping = candidate.mapping if isinstance(candidate.mapping, Mapping) else {}
        if self.name in mapping:
            return code_name(mapping[self.name]) in self.allowed
        return str(candidate.parameters.get(self.name, "")) in self.allowed


def conditions_of(text: str) -> tuple[Condition, ...]:
    """The conditions of a filter, separated by blanks; all have to hold. InputError."""
    found: list[Condition] = []
    for part in text.split():
        name, equals, values = part.partition("=")
        if not equals or not name or not values or len(found) >= MOST_CONDITIONS:
            raise InputError(
                Problem(
                    "where", "is no filter", part[:80], "28=W0,W1 or theta=4, at most 50 of them"
                )
            )
        found.append(Condition(name, frozenset(values.split(","))))
    return tuple(found)


def _largest_group(local_sizes: object) -> int | None:
    """Work-items of the largest work-group of all kernels."""
    if not isinstance(local_sizes, Mapping):
        return None
    sizes: list[int] = []
    for lengths in local_sizes.values():
        product = 1
        for length in lengths:
            product *= length
        sizes.append(product)
    return max(sizes, default=None)
