"""Figures of a sample: percentiles by the nearest rank, so that each is a value that was seen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def percentile(ordered: Sequence[float], share: float) -> float:
    """The least value that at least ``share`` (0 to 1) of them do not exceed; NaN of none."""
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def summary(values: Iterable[float], digits: int = 2) -> dict[str, float | int | None]:
    """Count, median, p95, p99 and extremes; None for what an empty sample has not."""
    ordered = sorted(values)
    shares = {"min": 0.0, "p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    found = {name: percentile(ordered, share) for name, share in shares.items()}
    rounded = {
        name: None if math.isnan(value) else round(value, digits) for name, value in found.items()
    }
    return {"count": len(ordered), **rounded}
