"""The device that a run measures on: one child, or a pool, since building takes longest."""

from __future__ import annotations

from nestmap.tuning.cores import usable_cores
from nestmap.tuning.processes import warm_up
from worker.devices.interface import MeasuringDevice

#: Each more takes the GPU for a second while it starts, and with these the GPU is always busy.
_MOST_BUILDERS = 10
#: Of a processor: who has built waits for the turn of all others (on two cores a third process
#: brought nothing).
_MOST_ON_A_PROCESSOR = 4


def open_measuring(spec: str = "host") -> MeasuringDevice:
    """The device that ``spec`` names, to be entered by the caller.

    On a device of its own (a GPU) kernels are built by as many processes as there are cores but
    one, and timed one after the other; what other processes need begins to be loaded, too. On a
    processor the cores are what is timed: processes build side by side, and none does while one
    times. Raises DeviceError where no device fits.
    """
    from worker.devices.names import is_null
    from worker.devices.null import NullDevice
    from worker.devices.opencl import find_device
    from worker.measuring import MeasuringChild
    from worker.pool import Pool

    if is_null(spec):
        return NullDevice()
    cores = usable_cores()
    quiet = find_device(spec).kind == "cpu"
    if not quiet:
        warm_up()
    builders = min(_MOST_ON_A_PROCESSOR, cores) if quiet else min(_MOST_BUILDERS, cores - 1)
    return Pool(spec, builders, quiet=quiet) if builders > 1 else MeasuringChild(spec)
