"""PoCL's threads, one on each core.

PoCL has a thread for each core, which sleeps between kernels. Linux then often wakes two of them
on one core while another idles, and a kernel of less than a millisecond is over before it moves
them: it takes up to twice as long, and another time at each run (docs/benchmarks.md, "Kernels on a
processor").
"""

from __future__ import annotations

import contextlib
import os

_SETTING = "POCL_AFFINITY"


def pin_pocl_threads() -> None:
    """Ask PoCL for pinned threads, where nobody has decided that (``POCL_AFFINITY``); to be called
    before its first use.

    PoCL pins thread i to core i, whatever cores it was given: nothing is asked for where this
    process may not use all of the machine's.
    """
    if _SETTING in os.environ or not hasattr(os, "sched_getaffinity"):
        return
    if os.sched_getaffinity(0) == set(range(os.cpu_count() or 0)):
        os.environ[_SETTING] = "1"


class Loosened:
    """PoCL's threads on any core, until :meth:`pinned_again`.

    PoCL compiles in them: two processes that build side by side would do so on one core, as often
    as not, while another idles.
    """

    def __init__(self) -> None:
        self._pinned: dict[int, set[int]] = {}
        if not hasattr(os, "sched_getaffinity"):
            return
        anywhere = os.sched_getaffinity(0)
        for thread in map(int, os.listdir("/proc/self/task")):
            # A thread may end meanwhile.
            with contextlib.suppress(OSError):
                cores = os.sched_getaffinity(thread)
                if cores < anywhere:
                    os.sched_setaffinity(thread, anywhere)
                    self._pinned[thread] = cores

    def pinned_again(self) -> None:
        """Each thread where it was."""
        while self._pinned:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(*self._pinned.popitem())
