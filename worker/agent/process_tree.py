"""Ending a process with all that it started, and saying so when one cannot be ended.

The agent adopts orphans (PR_SET_CHILD_SUBREAPER, prctl(2)): a measuring child whose executor
died is the agent's to kill, whatever signals its driver blocks. SIGKILL cannot be blocked, but
a process in uninterruptible sleep (state D, inside a driver) goes only when the driver lets it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL_GRACE_S = 5.0


def adopt_orphans() -> bool:
    """Become the parent of what children leave behind; False where the system cannot."""
    try:
        return ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False


def end_with_parent(parent: int) -> bool:
    """Get SIGTERM when the process of this number, our parent, ends; False where the system cannot,
    or it has ended already. 0: whatever our parent is, which then is not the first process.

    The parent must have started us from its main thread: the signal comes at that thread's end.
    """
    try:
        able = ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False
    now = os.getppid()
    return able and (now == parent if parent else now != 1)


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; empty when it is gone (proc(5))."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, ValueError):
        return []
    return text.rpartition(")")[2].split()


def state_of(pid: int) -> str:
    """The state letter of a process: ``D`` waits inside a driver, ``Z`` is dead."""
    fields = _stat(pid)
    return fields[0] if fields else "gone"


def children_of(parent: int) -> list[int]:
    """Living children of a process."""
    found: list[int] = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            fields = _stat(int(entry))
            if len(fields) > 1 and int(fields[1]) == parent and fields[0] not in "ZX":
                found.append(int(entry))
    return found


def descendants_of(root: int) -> list[int]:
    """A process's children, theirs, and so on."""
    found: list[int] = []
    front = [root]
    while front:
        children = children_of(front.pop())
        found += children
        front += children
    return found


def kill_tree(root: int | None, spared: Collection[int] = ()) -> list[int]:
    """Kill a child of ours (None: it ended already) with all that descends from it.

    What dead descendants left behind is our child now and is killed too, but for ``spared``.
    Returns those that do not go: the driver of the device holds them.
    """
    # Listed first: what loses its parent in between is adopted by us and found below.
    doomed = set() if root is None else {root, *descendants_of(root)}
    end = time.monotonic() + _KILL_GRACE_S
    while True:
        doomed |= set(children_of(os.getpid())) - set(spared)
        for pid in doomed:
            _kill_group(pid)
        reap(doomed)
        doomed = {pid for pid in doomed if state_of(pid) not in ("gone", "Z", "X")}
        if time.monotonic() > end:
            return sorted(doomed)
        if not doomed and not set(children_of(os.getpid())) - set(spared):
            return []
        time.sleep(0.01)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid and pid != os.getpgrp():
            os.killpg(pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)


def reap(pids: Collection[int]) -> None:
    """Collect those that are dead children of ours."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def stuck_text(pids: list[int]) -> str:
    """What to tell the owner about processes that ignore SIGKILL."""
    states = ", ".join(f"process {pid} in state {state_of(pid)}" for pid in pids)
    return f"{states}: the device's driver holds it and it ignores SIGKILL; reset or reboot"
