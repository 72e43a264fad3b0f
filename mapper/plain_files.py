"""Small files that somebody names: read within a bound, and at once."""

from __future__ import annotations

import os
import stat
from pathlib import Path


class NotPlainFile(OSError):
    """What is named is no regular file, or has more bytes than allowed; the message says which."""


def read_plain_file(path: Path, most_bytes: int) -> bytes:
    """The bytes of a regular file.

    A device may have no end and a pipe may keep its reader waiting, so that both are refused.
    Raises NotPlainFile, and OSError where it cannot be opened.
    """
    # Opening a pipe would wait for a writer otherwise.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotPlainFile("is not a regular file")
        # Files of /proc say that they have no bytes: what is read counts.
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise NotPlainFile(f"has more than {most_bytes} bytes")
    return data
