"""The multiply-adds that a CPU device reaches when nothing leaves its registers.

Clocks and neighbours change it as they change kernels, so it has a turn in each round beside
them: the share of it that a kernel reaches says what a ratio to a library cannot, how much there
was left to reach.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.kernels.turns import Turn, run_s, turn_of
from mapper.errors import DeviceError, Problem
from worker.measuring.loaded_plan import Session

#: Independent chains: at least the latency of a multiply-add times the units of a core, and with
#: a factor beside them no more than its registers (16 of AVX2, 32 of AArch64).
_CHAINS = 24 if platform.machine() in ("aarch64", "arm64") else 12
_STEPS = 250_000
#: Work-groups for a core: whichever thread is late, the others take its groups.
_GROUPS = 4
_WIDTHS = (1, 2, 4, 8, 16)
_MESSAGE_CHARACTERS = 300


def register_peak(session: Session) -> RegisterPeak | None:
    """The peak of a CPU that says how wide its vectors are; of others nothing can be said so.

    DeviceError as of :class:`RegisterPeak`.
    """
    device = session.device
    if device.kind != "cpu" or int(device.handle.native_vector_width_float) < 2:
        return None
    return RegisterPeak(session)


class RegisterPeak:
    """A kernel of chains of multiply-adds, in vectors of the device's own width; a context manager.

    DeviceError if the device does not build it.
    """

    def __init__(self, session: Session) -> None:
        import pyopencl as cl

        native = int(session.device.handle.native_vector_width_float)
        width = max(w for w in _WIDTHS if w <= max(native, 1))
        self._queue: Any = session.queue
        self._groups = _GROUPS * int(session.device.handle.max_compute_units)
        try:
            self._kernel: Any = cl.Program(session.context, _source(width)).build().multiply_adds
            size = self._groups * width * 4
            self._out: Any = cl.Buffer(session.context, cl.mem_flags.WRITE_ONLY, size)
            self._kernel.set_args(self._out, np.float32(0.5))
        except cl.Error as error:
            problem = Problem(
                str(session.device),
                "does not build a kernel of multiply-adds",
                str(error)[:_MESSAGE_CHARACTERS],
                "a CPU device with a compiler",
            )
            raise DeviceError(problem) from error
        #: Floating-point operations of a run.
        self.operations = 2 * _CHAINS * _STEPS * width * self._groups

    def turn(self, seconds: float, least: int) -> Turn:
        """As a library's turn."""
        return turn_of(lambda: run_s(self._queue, self._kernel, (self._groups,)), seconds, least)

    def written(self) -> NDArray[np.float32]:
        """What the groups of the last run wrote, each a vector: the sums of their chains."""
        import pyopencl as cl

        found = np.empty(self._out.size // 4, np.float32)
        cl.enqueue_copy(self._queue, found, self._out)
        return found

    def __enter__(self) -> RegisterPeak:
        return self

    def __exit__(self, *_: object) -> None:
        self._out.release()


def _source(width: int) -> str:
    vector = "float" if width == 1 else f"float{width}"
    start = " ".join(f"{vector} x{i} = ({vector})({i}.0f + first);" for i in range(_CHAINS))
    step = " ".join(f"x{i} = x{i} * w + w;" for i in range(_CHAINS))
    # A product and a sum, not fma(): PyPI's PoCL does not inline that of vectors.
    return f"""
#pragma OPENCL FP_CONTRACT ON
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void multiply_adds(__global {vector} *out, const float factor)
{{
    const float first = get_group_id(0);
    const {vector} w = ({vector})(factor);
    {start}
    for (int step = 0; step < {_STEPS}; ++step) {{
        {step}
    }}
    out[get_group_id(0)] = {" + ".join(f"x{i}" for i in range(_CHAINS))};
}}
"""
