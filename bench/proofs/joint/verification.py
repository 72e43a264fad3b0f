"""Is a generated candidate within a device's limits, and are its barriers met by everyone?

Nothing here asks the solver or the rules: the host plan and the printed source are held
against the device's profile and against each other, and the barriers are placed once more by
the generator's own check.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from bench.proofs.joint.printed_kernels import FLOAT_BYTES, PrintedKernel, read_kernels
from mapper.ast_model.loop_nest import LoopProgram
from mapper.device_profile import DeviceProfile
from mapper.host_plan import HostPlan, Launch
from mapper.kernel_gen.barriers import plan_barriers
from mapper.kernel_gen.generate import Choices

# Kernels compute element indices in 32-bit signed integers.
_MAX_ELEMENTS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Seen:
    """What a candidate uses at most, in bytes, work-items and barriers over its kernels."""

    local_bytes: int
    private_bytes: int
    work_items: int
    global_bytes: int
    barriers: int


def faults(
    plan: HostPlan, loops: LoopProgram, choices: Choices, device: DeviceProfile
) -> Iterator[str]:
    """A sentence for each thing that is wrong with a candidate.

    ``loops`` are elaborated with the values in ``choices``. Raises InputError if the
    generator's check refuses a barrier, ValueError if the source cannot be read.
    """
    yield from _global_faults(plan, device)
    kernels = list(read_kernels(plan.source))
    if not len(kernels) == len(plan.launches) == len(loops.kernels):
        yield (
            f"{len(kernels)} kernels are printed, {len(plan.launches)} launched, "
            f"{len(loops.kernels)} in the program"
        )
        return
    for kernel, launch, nest in zip(kernels, plan.launches, loops.kernels, strict=True):
        yield from (f"{kernel.name}: {text}" for text in _launch_faults(kernel, launch, device))
        size = choices.local_sizes.get(nest.name, (1, 1, 1))
        planned = len(plan_barriers(nest, choices.codes, size))
        if kernel.barriers != planned:
            yield f"{kernel.name}: {kernel.barriers} barriers are printed, {planned} planned"


def seen(plan: HostPlan) -> Seen:
    """What the candidate uses, by its source and buffers."""
    kernels = list(read_kernels(plan.source))
    return Seen(
        max(kernel.local_bytes for kernel in kernels),
        max(kernel.private_bytes for kernel in kernels),
        max(prod(kernel.work_group) for kernel in kernels),
        plan.memory_bytes,
        sum(kernel.barriers for kernel in kernels),
    )


def _global_faults(plan: HostPlan, device: DeviceProfile) -> Iterator[str]:
    for buffer in plan.buffers:
        if buffer.bytes < FLOAT_BYTES * prod(buffer.shape):
            yield f"buffer {buffer.name} of shape {buffer.shape} is given {buffer.bytes} bytes"
        if buffer.bytes > min(device.max_alloc_bytes, FLOAT_BYTES * _MAX_ELEMENTS):
            yield f"buffer {buffer.name} of {buffer.bytes} bytes cannot be allocated"
    total = sum(buffer.bytes for buffer in plan.buffers)
    if total > device.global_bytes:
        yield f"{total} bytes of global memory, the device has {device.global_bytes}"


def _launch_faults(kernel: PrintedKernel, launch: Launch, device: DeviceProfile) -> Iterator[str]:
    if kernel.name != launch.kernel:
        yield f"is launched as {launch.kernel}"
    if kernel.work_group != launch.local_size:
        yield f"demands groups of {kernel.work_group}, is launched in {launch.local_size}"
    if prod(kernel.work_group) > device.max_work_group_size:
        yield (
            f"groups of {kernel.work_group} work-items, the device allows "
            f"{device.max_work_group_size}"
        )
    for dimension, size in enumerate(kernel.work_group):
        if size > device.max_work_item_sizes[dimension]:
            yield (
                f"{size} work-items in dimension {dimension}, the device allows "
                f"{device.max_work_item_sizes[dimension]}"
            )
        if launch.global_size[dimension] % size:
            yield f"global size {launch.global_size} is no multiple of {kernel.work_group}"
    if kernel.local_bytes != launch.local_bytes:
        yield f"{kernel.local_bytes} local bytes are declared, {launch.local_bytes} planned"
    if kernel.local_bytes > device.local_bytes:
        yield f"{kernel.local_bytes} local bytes, the device has {device.local_bytes}"
    if kernel.private_bytes > launch.private_bytes:
        yield f"{kernel.private_bytes} private bytes are declared, {launch.private_bytes} planned"
    if max(kernel.private_bytes, launch.private_bytes) > device.private_bytes:
        yield (
            f"{max(kernel.private_bytes, launch.private_bytes)} private bytes, the device has "
            f"{device.private_bytes}"
        )
    most = device.kernel_private_bytes
    if most is not None and kernel.stacked_bytes > most:
        yield f"{kernel.stacked_bytes} private bytes on a thread's stack, the device has {most}"
    for head in kernel.divergent:
        yield f"a barrier stands where not all work-items come by: {head}"
