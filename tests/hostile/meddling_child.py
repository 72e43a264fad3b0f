"""A measuring child that meddles with what its parent reads; run by test_child_process.py."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from worker.measuring.wire import receive, send


def main() -> None:
    """Meddle as the environment says, and die."""
    private = Path(os.environ["TMPDIR"]).parent
    how, aim = os.environ["MEDDLE"].split(":")
    print("what the child has to say", file=sys.stderr, flush=True)
    if how in ("symlink", "fifo"):
        said = private / "stderr.txt"
        said.unlink(missing_ok=True)
        said.symlink_to(aim) if how == "symlink" else os.mkfifo(said)
    elif how == "floods":
        os.write(2, b"x" * (1 << 20) * 64)
    elif how == "deep":
        os.chdir(private)
        for _ in range(3000):
            os.mkdir("d")
            os.chdir("d")
    elif how == "steals":
        send(1, {"type": "first"})
        own = os.open("/proc/self/fd/1", os.O_RDONLY)
        for _ in range(4):
            threading.Thread(target=lambda: [os.read(own, 1) for _ in range(10**9)]).start()
        while True:
            os.write(1, b"x")
    send(1, {"type": "ready"})
    receive(0)
    time.sleep(0.2)
    os._exit(3)


if __name__ == "__main__":
    main()
