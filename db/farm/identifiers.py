"""Names of rows: a prefix and 26 characters that sort by time of birth.

52 bits of microseconds (until 2112) and 78 random bits, in lower-case Crockford base 32, as in
ULID with a finer clock. New rows land at the end of an index, and a queue is ordered by name.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta

BOARD_PREFIX = "dev_"
RUN_PREFIX = "run_"
JOB_PREFIX = "job_"

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_CHARACTERS = 26
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_BITS = 52
_RANDOM_BITS = 78


def new_identifier(prefix: str, now: datetime) -> str:
    """One new name."""
    return new_identifiers(prefix, now, 1)[0]


def new_identifiers(prefix: str, now: datetime, count: int) -> list[str]:
    """New names in ascending order, so that what is stored together keeps its order."""
    microseconds = (now - _EPOCH) // timedelta(microseconds=1) & ((1 << _TIME_BITS) - 1)
    # Room above the random part, so that counting up never reaches the time.
    first = (microseconds << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS - 1)
    return [prefix + _text(first + number) for number in range(count)]


def _text(value: int) -> str:
    digits = [_ALPHABET[(value >> (5 * place)) & 31] for place in range(_CHARACTERS)]
    return "".join(reversed(digits))
