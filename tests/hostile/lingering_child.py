"""The sandboxed measuring child, in which every job but the first leaves a thread behind."""

from __future__ import annotations

import argparse
import os
import threading
import time
from pathlib import Path
from typing import Any

from worker.measuring.sandbox import VARIABLE, Folders, Sandbox, enter, restrain

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lifeline", type=int, required=True)
    known, _ = parser.parse_known_args()
    scratch = Path(os.environ["TMPDIR"]).parent
    restrain()
    facts = enter(
        Sandbox.from_text(os.environ[VARIABLE]),
        Folders(scratch.parent / "workloads", scratch),
        known.lifeline,
    )
    from worker.measuring import child_main

    measure_plan, jobs = child_main.measure_plan, []

    def lingering(*arguments: Any, **named: Any) -> Any:
        """Measure, and have a thread that goes on."""
        jobs.append(1)
        if len(jobs) > 1:
            threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
        return measure_plan(*arguments, **named)

    child_main.measure_plan = lingering
    os._exit(child_main.main(facts))
