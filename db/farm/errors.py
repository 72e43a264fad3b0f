"""What repositories of the farm raise besides ``InputError``, ``LimitError`` and ``StoreError``.

InputError
 +-- AbsentError            an identifier names nothing
 +-- ConflictError          the state of the object does not allow it, or a name is taken
 +-- CodeGone               an enrolment code is unknown, used or expired
 +-- IdempotencyKeyReused   the key came before with another body
NestmapError
 +-- StaleLease             the attempt is not the newest of its job, or was ended
"""

from __future__ import annotations

from mapper.errors import InputError, NestmapError, Problem


class AbsentError(InputError):
    """An identifier names nothing."""


class ConflictError(InputError):
    """The state of the object does not allow what was asked, or a name is taken."""


class CodeGone(InputError):
    """An enrolment code is unknown, was used or has expired; which of them is not said."""


class IdempotencyKeyReused(InputError):
    """The same principal used the key before, with another body."""


class StaleLease(NestmapError):
    """The lease is not the newest of its job, or was taken away: the work is to be dropped."""


def absent(what: str, found: str) -> AbsentError:
    """An ``AbsentError`` about ``what``; ``found`` is shortened, as it comes from outside."""
    return AbsentError(Problem(what, f"no such {what} in the store", found=ascii(found)[:80]))
