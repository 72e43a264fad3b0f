"""PoCL's threads, one on each core.

PoCL has a thread for each core, which sleeps between kernels. Linux then often wakes two of them
on one core while another idles, and a kernel of less than a millisecond is over before it moves
them: it takes up to twice as long, and another time at each run (docs/benchmarks.md, "Kernels on a
processor").
"""

from __future__ import annotations

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
