"""The child that runs plans to be judged: ``python -m bench.proofs.completeness.judge_main``.

Meant to run under Oclgrind or on a device of its own process, for what it runs is not trusted.
The first line on stdin names the device and gives the inputs; each further line is a plan. It
says ``ready`` when the device is open, and answers each plan with one line: the output, or what
went wrong.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from mapper.host_plan import HostPlan
from worker.measuring.driver_errors import PlanFailure
from worker.measuring.loaded_plan import LoadedPlan, open_session


def main() -> int:
    """Answer plans until stdin ends."""
    head = json.loads(sys.stdin.readline())
    session = open_session(head["device"])
    inputs = {name: np.array(values, dtype=np.float32) for name, values in head["inputs"].items()}
    _say("ready")
    for line in sys.stdin:
        answer: dict[str, Any]
        if head["simulated"]:
            # What a simulator knows of a buffer outlives the buffer, but not the context.
            session = open_session(head["device"])
        try:
            with LoadedPlan(session, HostPlan.from_json(json.loads(line))) as loaded:
                loaded.fill_inputs(inputs)
                if not head["simulated"]:
                    # A simulator would take the poison for memory that was written.
                    loaded.poison()
                loaded.run()
                # Without NaN and infinities as words that are not JSON.
                answer = {"output": [float(v).hex() for v in loaded.read_output().ravel()]}
        except PlanFailure as failure:
            answer = {"failure": str(failure.outcome)}
        _say(json.dumps(answer))
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
