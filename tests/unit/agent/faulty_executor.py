"""An executor that fails on demand: by TEST_EXECUTOR, and by the candidate of each job."""

from __future__ import annotations

import ctypes
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time

MODE = os.environ["TEST_EXECUTOR"]
GOLDEN = "the golden kernel fails: Wrong"


def emit(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def hang_in_c() -> None:
    """Block every signal that can be and never come back, with the interpreter's lock held."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    ctypes.PyDLL(None).pause()


def main() -> None:
    if MODE == "absent":
        emit("no-device", reason="no such device")
        return
    jobs: queue.SimpleQueue[dict | None] = queue.SimpleQueue()
    cancelled = threading.Event()

    def read() -> None:
        for line in sys.stdin:
            message = json.loads(line)
            if message["do"] == "cancel":
                cancelled.set()
            else:
                jobs.put(message)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    emit("ready", facts={"device.kind": "faulty"})
    while (message := jobs.get()) is not None:
        job = message["job"]
        emit("stage", job=job, stage="measuring")
        match message["payload"]["candidate"]:
            case "poison":
                print("a kernel wrote over me", file=sys.stderr, flush=True)
                os.kill(os.getpid(), signal.SIGSEGV)
            case "breaks":
                emit("quarantined", reason=GOLDEN)
                return
            case "short":
                time.sleep(3.0)
            case "endless" if MODE == "deaf":
                # As a driver does: the child has a session of its own and blocks what it can.
                code = "from tests.unit.agent.faulty_executor import hang_in_c; hang_in_c()"
                subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
                emit("stage", job=job, stage="hanging")
                hang_in_c()
            case "endless":
                cancelled.wait()
                cancelled.clear()
                emit("cancelled", job=job)
                emit("ready", facts={})
                continue
        detail = {"max_relative_error": 0.0, "compile_ms": 1.0, "facts": {}}
        timed = {"kind": "timed", "detail": detail, "trials_ns": [1000]}
        emit("outcome", job=job, outcome=timed, facts={})
        emit("ready", facts={})


if __name__ == "__main__":
    main()
