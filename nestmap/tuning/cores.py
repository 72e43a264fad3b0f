"""How many processors this process may use."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Those that it is allowed to run on, at least one."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
