"""The child of :mod:`tests.kernels`.

Reads a folder and a device a line, runs the plan that lies there and writes its output beside it.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np

from mapper.errors import DeviceError, InputError
from mapper.host_plan import HostPlan
from worker.measuring.loaded_plan import open_session
from worker.run_plan import run_once


def main() -> None:
    """Answer until the parent closes its end: an empty object, or what was wrong."""
    # Drivers write to standard output too.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    session = cache(open_session)
    for line in sys.stdin:
        name, _, device = line.strip().partition(" ")
        folder = Path(name)
        said: dict[str, object] = {}
        try:
            plan = HostPlan.from_json(json.loads((folder / "plan.json").read_text()))
            with np.load(folder / "inputs.npz", allow_pickle=False) as archive:
                inputs = {key: archive[key] for key in archive.files}
            output = run_once(plan, inputs, session(device))
            np.save(folder / "output.npy", output, allow_pickle=False)
        except (DeviceError, InputError) as error:
            kind = "device" if isinstance(error, DeviceError) else "input"
            said = {"kind": kind, "problems": [asdict(p) for p in error.problems]}
        print(json.dumps(said), file=answers, flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)
