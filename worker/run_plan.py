"""Run a plan once in this process: ``python -m worker.run_plan plan.json inputs.npz out.npy``.

Meant to run under a simulator such as Oclgrind, which takes the place of the driver. It is
neither timed nor supervised. Called so, buffers are neither poisoned nor guarded: a simulator would
take the poison for initialised memory, and guards for memory that a kernel may use.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mapper.errors import DeviceError, NestmapError, Problem
from mapper.host_plan import BufferRole, HostPlan
from mapper.plain_files import read_plain_file
from worker.measuring.array_files import load_arrays
from worker.measuring.checks import check_plan
from worker.measuring.driver_errors import PlanFailure
from worker.measuring.loaded_plan import LoadedPlan, Session, open_session

MAX_PLAN_BYTES = 64 * 2**20


def run_once(
    plan: HostPlan,
    inputs: Mapping[str, np.ndarray[Any, Any]],
    device: str | Session = "host",
    *,
    guarded: bool = True,
) -> np.ndarray[Any, Any]:
    """Build and run ``plan`` once and return its output, in its element type.

    ``device`` is a specification, or a session that is open already (PoCL reads its library of
    functions anew for each). ``guarded``: with NaNs in and around all buffers, as in verification.
    Raises InputError for inputs that do not fit the plan and DeviceError when the device is
    not there, or the plan does not build or run on it, or writes beside its arrays. A kernel that
    crashes takes this process along: candidates that are not trusted belong into a measuring child.
    """
    check_plan(
        plan,
        {name: array.shape for name, array in inputs.items()},
        {name: array.dtype for name, array in inputs.items()},
    )
    session = open_session(device) if isinstance(device, str) else device
    try:
        with LoadedPlan(session, plan, with_guards=guarded) as loaded:
            loaded.fill_inputs(inputs)
            if guarded:
                loaded.poison()
            loaded.run()
            outside = loaded.written_outside() if guarded else ""
            result = loaded.read_output()
    except PlanFailure as failure:
        raise DeviceError(
            Problem("plan", "does not run on this device", found=str(failure.outcome))
        ) from failure
    if outside:
        raise DeviceError(Problem("plan", "writes outside of its arrays", found=outside))
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the plan that the command line names; prints errors only, 0 means done."""
    parser = argparse.ArgumentParser(prog="worker.run_plan", description="Run a plan once.")
    parser.add_argument("plan", type=Path, help="plan as JSON")
    parser.add_argument("inputs", type=Path, help="inputs by buffer name, .npz")
    parser.add_argument("output", type=Path, help="where the output goes, .npy")
    parser.add_argument("--device", default="0", help="device spec (default: the first)")
    options = parser.parse_args(arguments)
    try:
        plan = HostPlan.from_json(json.loads(read_plain_file(options.plan, MAX_PLAN_BYTES)))
        inputs = load_arrays(
            options.inputs,
            {
                buffer.name: (buffer.shape, np.dtype(buffer.dtype.value))
                for buffer in plan.buffers
                if buffer.role is BufferRole.INPUT
            },
        )
        result = run_once(plan, inputs, options.device, guarded=False)
        np.save(options.output, result, allow_pickle=False)
    except (NestmapError, OSError, ValueError, KeyError, TypeError) as error:
        print(f"worker.run_plan: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
