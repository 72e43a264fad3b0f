"""How long an attempt to measure may take, whatever its board says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

#: In a job's payload: seconds after which its candidate is killed.
TIMEOUT_S = "timeout_s"
DEFAULT_TIMEOUT_S = 60.0
#: What a job may take beside its candidate's own time: fetching arrays over a slow line.
FETCH_S = 300.0
_MOST_TIMEOUT_S = 86_400.0


def attempt_s(payload: Mapping[str, Any]) -> float:
    """Seconds that an attempt at a ``measure`` job may take in all."""
    return whole_s(payload.get(TIMEOUT_S))


def whole_s(timeout_s: float | None) -> float:
    """The same, by what the payload says of its candidate; None where it says nothing."""
    stated = DEFAULT_TIMEOUT_S if timeout_s is None else float(timeout_s)
    if not math.isfinite(stated):
        stated = _MOST_TIMEOUT_S
    return min(max(stated, 0.0), _MOST_TIMEOUT_S) + FETCH_S
