"""The golden kernel: known to be right, it tells a broken device from a broken candidate.

It runs after every (re)start of the measuring child, and around the timed runs of every
candidate, where a change of its time shows that the machine itself changed its speed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mapper.host_plan import BufferRole, HostPlan, Launch, PlannedBuffer

_SIZE = 16_384
_GROUP = 64
_STEPS = 64

# Local memory, a barrier and some arithmetic: what a candidate may rely on. Halving is exact,
# so it makes no difference whether the driver fuses the multiplication with the addition.
_SOURCE = f"""\
__kernel void golden(__global const float *restrict input, __global float *restrict result) {{
  __local float tile[{_GROUP}];
  const int i = get_local_id(0);
  const float start = input[get_global_id(0)];
  float x = start;
  for (int step = 0; step < {_STEPS}; ++step)
    x = x * 0.5f + (start + (float)(step & 7));
  tile[i] = x;
  barrier(CLK_LOCAL_MEM_FENCE);
  result[get_global_id(0)] = tile[{_GROUP - 1} - i];
}}
"""


@dataclass(frozen=True, slots=True)
class GoldenKernel:
    """A plan with inputs for which the output is known."""

    plan: HostPlan
    inputs: Mapping[str, np.ndarray[Any, Any]]
    expected: np.ndarray[Any, Any]


def golden_kernel() -> GoldenKernel:
    """Build the golden kernel; its reference is computed by NumPy in 32-bit floats."""
    data = np.random.default_rng(2024).random(_SIZE, dtype=np.float32)
    x = data.copy()
    for step in range(_STEPS):
        x = x * np.float32(0.5) + (data + np.float32(step & 7))
    expected = x.reshape(-1, _GROUP)[:, ::-1].reshape(-1)
    size_bytes = 4 * _SIZE
    plan = HostPlan(
        source=_SOURCE,
        buffers=(
            PlannedBuffer("input", BufferRole.INPUT, size_bytes, (_SIZE,), 0, 0),
            PlannedBuffer("result", BufferRole.OUTPUT, size_bytes, (_SIZE,), 0, 0),
        ),
        launches=(
            Launch(
                "golden", (_SIZE, 1, 1), (_GROUP, 1, 1), ("input", "result"), local_bytes=4 * _GROUP
            ),
        ),
    )
    return GoldenKernel(plan, {"input": data}, np.ascontiguousarray(expected))
