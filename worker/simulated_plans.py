"""Run many plans under a simulator: ``python -m worker.simulated_plans folder timeout_s``.

Meant to run under Oclgrind, which takes the place of the driver. What costs time there is the
start of Python and of the simulator, not the small plans; so this process starts once and
forks for each plan. A child has the simulator to itself: its findings go to a log of its own,
and if it crashes or hangs the others do not notice.

In ``folder`` each plan has a folder named by its number, with ``plan.json`` and ``inputs.npz``
(float32 by buffer name); its child leaves ``log.txt`` (the simulator's), ``stderr.txt``,
``out.npy`` (float32) and, when it has ended, ``exit.txt`` with its wait status.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

# Imported here, before any fork, so that no child pays for it. Neither opens a device yet.
import pyopencl

from worker import run_plan

__all__ = ["main", "pyopencl"]


def main() -> int:
    """Run every plan in the folder that has not ended yet, in the order of their numbers."""
    folder, timeout_s = Path(sys.argv[1]), float(sys.argv[2])
    for place in sorted(folder.iterdir(), key=lambda path: int(path.name)):
        if (place / "exit.txt").exists():
            continue
        child = os.fork()
        if child == 0:
            # Skips Python's clean-up, which belongs to the parent.
            os._exit(_run(place, timeout_s))
        _, status = os.waitpid(child, 0)
        written = place / "exit.new"
        written.write_text(str(status))
        written.rename(place / "exit.txt")
    return 0


def _run(place: Path, timeout_s: float) -> int:
    # The default action ends the process even while the simulator runs an endless kernel.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    os.environ["OCLGRIND_LOG"] = str(place / "log.txt")
    stderr = os.open(place / "stderr.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(stderr, 2)
    try:
        arguments = [str(place / name) for name in ("plan.json", "inputs.npz", "out.npy")]
        return run_plan.main(arguments)
    except BaseException as error:
        os.write(2, f"{error!r}\n".encode())
        return 1


if __name__ == "__main__":
    sys.exit(main())
