"""The turns that children take which share a device, by locks on a file.

A process that dies gives back what it held.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from worker.devices.pinning import Loosened


class Turns:
    """A child's side of a turn file; ``say`` hears that it waits.

    Who runs has the device alone. Where turns are ``quiet`` nobody builds meanwhile either, and
    judging belongs to the turn: on a processor all of it takes the cores of what is timed.
    """

    def __init__(self, path: str | Path, quiet: bool, say: Callable[[str], None]) -> None:
        # For reading, as a child in a sandbox may: a lock needs no more.
        self._file = os.open(path, os.O_RDONLY)
        self._quiet = quiet
        self._say = say
        self._loosened: Loosened | None = None

    @contextlib.contextmanager
    def candidate(self) -> Iterator[None]:
        """All of a candidate: what builds, and in :meth:`running` what runs."""
        if not self._quiet:
            yield
            return
        self._say("waiting")
        fcntl.flock(self._file, fcntl.LOCK_SH)
        self._loosened = Loosened()
        try:
            yield
        finally:
            self._loosened.pinned_again()
            fcntl.flock(self._file, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The device for this process alone."""
        self._say("waiting")
        # Linux gives a shared lock up before it waits for this one: two that build never wait
        # for each other.
        fcntl.flock(self._file, fcntl.LOCK_EX)
        if self._loosened is not None:
            self._loosened.pinned_again()
        try:
            yield
        finally:
            if not self._quiet:
                fcntl.flock(self._file, fcntl.LOCK_UN)


@contextlib.contextmanager
def beside(path: Path) -> Iterator[None]:
    """For work in the parent that is not to be done while a candidate runs."""
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield
