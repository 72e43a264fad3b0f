"""The measuring child in its sandbox: ``python -m worker.measuring.sandboxed_child``.

Takes the place of :mod:`worker.measuring.child_main`, whose arguments it has.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from worker.measuring.sandbox import VARIABLE, Folders, Sandbox, enter, restrain

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lifeline", type=int, required=True)
    known, _ = parser.parse_known_args()
    scratch = Path(os.environ["TMPDIR"]).parent
    restrain()
    # Before the first thread, and before anything of a driver is loaded.
    facts = enter(
        Sandbox.from_text(os.environ[VARIABLE]),
        Folders(scratch.parent / "workloads", scratch),
        known.lifeline,
    )
    from worker.measuring.child_main import main

    # Skip interpreter and driver clean-up, as the child does by itself.
    os._exit(main(facts))
