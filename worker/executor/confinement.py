"""What the measuring child may do to its machine, put on before any kernel is loaded.

The limits travel in an environment variable: the child's command line belongs to
:mod:`worker.measuring`. What a system cannot do (a container without user namespaces, an
emulator) is left out and shows in the facts of each measurement.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

VARIABLE = "NESTMAP_CHILD_CONFINEMENT"
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_PR_SET_NO_NEW_PRIVS = 38
_OPEN_FILES = 1024


@dataclass(frozen=True, slots=True)
class Confinement:
    """Niceness 0 to 19; address space in bytes (None: no limit); whether it has a network."""

    nice: int = 5
    memory_bytes: int | None = None
    network: bool = False

    def to_text(self) -> str:
        """For the environment; :meth:`from_text` reads it back."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_text(text: str) -> Confinement:
        """Read what :meth:`to_text` wrote."""
        return Confinement(**json.loads(text))


def confine(confinement: Confinement) -> None:
    """Put this process, which has a single thread, under its limits; they cannot be undone."""
    with contextlib.suppress(OSError):
        os.nice(confinement.nice)
    _limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
    if confinement.memory_bytes is not None:
        _limit(resource.RLIMIT_AS, confinement.memory_bytes)
    libc = ctypes.CDLL(None, use_errno=True)
    # No set-user-id program gives it more than it has.
    _attempt("no_new_privs", lambda: libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if not confinement.network and not _attempt("unshare", lambda: libc.unshare(_CLONE_NEWNET)):
        # Without privileges a user namespace of its own brings the right to a network one.
        # Files and devices stay reachable: they are checked against the ids outside.
        _attempt("unshare with users", lambda: libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET))


def _limit(which: int, most: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(which, (most, most))


def _attempt(what: str, call: Callable[[], int]) -> bool:
    """Whether a call of libc worked; why not goes to standard error."""
    try:
        if call() == 0:
            return True
        print(f"{what}: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
    except AttributeError as error:
        print(f"{what}: {error}", file=sys.stderr)
    return False


def network_of(pid: int) -> str:
    """``none`` if a process has a network of its own (and so none), else ``shared``."""
    try:
        alone = os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")
    except OSError:
        return "unknown"
    return "none" if alone else "shared"
