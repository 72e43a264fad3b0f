"""Names of rows: a prefix and 26 characters that sort by time of birth.

48 bits of milliseconds and 80 random bits, as in ULID, in lower-case Crockford base 32. New
rows land at the end of an index, and a queue can be ordered by name.
"""

from __future__ import annotations

import secrets
from datetime import datetime

BOARD_PREFIX = "dev_"
RUN_PREFIX = "run_"
JOB_PREFIX = "job_"

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_CHARACTERS = 26
_RANDOM_BITS = 80


def new_identifier(prefix: str, now: datetime) -> str:
    """One new name."""
    return new_identifiers(prefix, now, 1)[0]


def new_identifiers(prefix: str, now: datetime, count: int) -> list[str]:
    """New names in ascending order, so that what is stored together keeps its order."""
    milliseconds = int(now.timestamp() * 1000) & ((1 << 48) - 1)
    # Room above the random part, so that counting up never reaches the time.
    first = (milliseconds << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS - 1)
    return [prefix + _text(first + number) for number in range(count)]


def _text(value: int) -> str:
    digits = [_ALPHABET[(value >> (5 * place)) & 31] for place in range(_CHARACTERS)]
    return "".join(reversed(digits))
