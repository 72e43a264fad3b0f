"""How much tests try of what there is no end of: mappings, layers and programs at random.

A part wherever tests run, all of it by `make kernels` and `make campaigns`, which say so with
``NESTMAP_TESTS=long``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from typing import Any

LONG = os.environ.get("NESTMAP_TESTS") == "long"


def cases(few: int, many: int) -> int:
    """How many cases at random."""
    return many if LONG else few


def combined(*values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Every combination where much is tried; else every other one, by the sum of its places, so
    that where one of the sequences has two values or more, all combinations of the rest stand in
    one, and each two values meet."""
    places = product(*(range(len(sequence)) for sequence in values))
    return [
        tuple(sequence[place] for sequence, place in zip(values, chosen, strict=True))
        for chosen in places
        if LONG or not sum(chosen) % 2
    ]
