"""One-time codes with which a browser is let in: ``nestmap serve`` prints one in a link."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable

CODE_LIFETIME_S = 900.0


class SignInCodes:
    """One-time codes, of which hashes are kept in memory until they are used or expire."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._valid: dict[bytes, float] = {}

    def make(self, lifetime_s: float = CODE_LIFETIME_S) -> str:
        """A new code. Whoever knows it becomes an admin, once."""
        code = secrets.token_urlsafe(24)
        self._valid[_digest(code)] = self._clock() + lifetime_s
        return code

    def use(self, code: str) -> bool:
        """Whether the code was valid; it is not any more."""
        now = self._clock()
        self._valid = {known: end for known, end in self._valid.items() if end > now}
        given = _digest(code)
        found = next((known for known in self._valid if hmac.compare_digest(known, given)), None)
        if found is None:
            return False
        del self._valid[found]
        return True


def _digest(code: str) -> bytes:
    return hashlib.sha256(code.encode("utf-8", "replace")).digest()
