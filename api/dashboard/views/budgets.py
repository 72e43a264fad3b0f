"""The fastest kernel within so many bytes: the question that a front answers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from db.farm.fronts import StudiedPoint

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*")
_SCALES = {
    "": 1, "b": 1, "k": 1e3, "kb": 1e3, "kib": 1024, "m": 1e6, "mb": 1e6, "mib": 1024**2,
    "g": 1e9, "gb": 1e9, "gib": 1024**3,
}  # fmt: skip


def parsed_size(text: str) -> int | None:
    """Bytes that somebody has typed (``4096``, ``1.5 MiB``, ``2M``); None for what is none."""
    found = _SIZE.fullmatch(text)
    scale = _SCALES.get(found[2].lower()) if found else None
    return None if found is None or scale is None else int(float(found[1]) * scale)


def fastest_within(front: Sequence[StudiedPoint], most_bytes: int) -> StudiedPoint | None:
    """The first of a front, fastest first, that needs no more than ``most_bytes``."""
    return next((point for point in front if point.memory_bytes <= most_bytes), None)
