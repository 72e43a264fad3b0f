"""How long an attempt to measure may take, whatever its board says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from db.farm.states import JobKind

#: In a job's payload: seconds after which its candidate is killed.
TIMEOUT_S = "timeout_s"
DEFAULT_TIMEOUT_S = 60.0
#: What a job may take beside its candidate's own time: fetching arrays over a slow line.
FETCH_S = 300.0
_MOST_TIMEOUT_S = 86_400.0


def attempt_s(payload: Mapping[str, Any]) -> float:
    """Seconds that an attempt at a ``measure`` job may take in all."""
    return whole_s(payload.get(TIMEOUT_S))


def attempt_end(kind: str, timeout_s: float | None, claimed_at: datetime) -> datetime:
    """When an attempt is over, however often it is said to go on. Only what boards do has an end
    by the clock; solver workers are one's own, and their children have limits."""
    if kind != JobKind.MEASURE:
        return datetime.max.replace(tzinfo=UTC)
    return claimed_at + timedelta(seconds=whole_s(timeout_s))


def whole_s(timeout_s: float | None) -> float:
    """The same, by what the payload says of its candidate; None where it says nothing."""
    stated = DEFAULT_TIMEOUT_S if timeout_s is None else float(timeout_s)
    if not math.isfinite(stated):
        stated = _MOST_TIMEOUT_S
    return min(max(stated, 0.0), _MOST_TIMEOUT_S) + FETCH_S
