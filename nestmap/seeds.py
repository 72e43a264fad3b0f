"""Seeds for the parts of something that has one seed."""

from __future__ import annotations

import hashlib
import json


def derived_seed(*parts: object) -> int:
    """A seed of 31 bits from a seed and what it is for; stable across processes."""
    text = json.dumps([str(part) for part in parts])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 1
