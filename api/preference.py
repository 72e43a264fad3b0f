"""``Prefer: wait=N`` (RFC 7240, section 4.3): how long a client waits before it gets a 202."""

from __future__ import annotations

import re

_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?([0-9]{1,6})\"?\s*(?=$|[,;])", re.IGNORECASE)


def preferred_wait_s(header: str | None, default_s: float, most_s: float) -> float:
    """The seconds to wait; a header that cannot be read is no preference, as the RFC says."""
    found = _WAIT.search(header or "")
    return min(float(found[1]) if found else default_s, most_s)
