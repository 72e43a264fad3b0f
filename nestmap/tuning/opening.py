"""The device that a run measures on: one child, or a pool where building is the bottleneck."""

from __future__ import annotations

from nestmap.tuning.cores import usable_cores
from worker.devices.interface import MeasuringDevice

#: Each more takes the GPU for a second while it starts, and with these the GPU is always busy.
_MOST_BUILDERS = 10


def open_measuring(spec: str = "host") -> MeasuringDevice:
    """The device that ``spec`` names, to be entered by the caller.

    On a device of its own (a GPU) kernels are built by as many processes as there are cores but
    one, and timed one after the other. On a processor the cores are what is timed: one process
    builds and times. Raises DeviceError where no device fits.
    """
    from worker.devices.names import is_null
    from worker.devices.null import NullDevice
    from worker.devices.opencl import find_device
    from worker.measuring import MeasuringChild
    from worker.pool import Pool

    if is_null(spec):
        return NullDevice()
    builders = max(1, min(_MOST_BUILDERS, usable_cores() - 1))
    if builders == 1 or find_device(spec).kind == "cpu":
        return MeasuringChild(spec)
    return Pool(spec, builders)
