"""Launches that nobody gets an event of.

pyopencl asks the driver for an event of every launch; NVIDIA's spends 2 us of the device on it
between two kernels of a queue. A program that launches layer after layer has no use for them, so
kernels that are timed back to back are launched without.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


def launch_unobserved(
    queue: Any, kernel: Any, global_size: tuple[int, ...], local_size: tuple[int, ...]
) -> None:
    """Put a kernel whose arguments are set into a queue; raises pyopencl.Error."""
    import pyopencl as cl

    sizes = ctypes.c_size_t * len(global_size)
    status = _entry_point()(
        queue.int_ptr,
        kernel.int_ptr,
        len(global_size),
        None,
        sizes(*global_size),
        sizes(*local_size),
        0,
        None,
        None,
    )
    if status != 0:
        # What is refused is refused again, with the error that everybody else gets.
        cl.enqueue_nd_range_kernel(queue, kernel, global_size, local_size)


@cache
def _entry_point() -> Callable[..., int]:
    # The loader that pyopencl is linked with, be it the system's or its own.
    found = ctypes.CDLL(import_module("pyopencl._cl").__file__).clEnqueueNDRangeKernel
    handle, sizes = ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)
    found.argtypes = [handle, handle, ctypes.c_uint, sizes, sizes, sizes, ctypes.c_uint]
    found.argtypes += [handle, handle]
    found.restype = ctypes.c_int
    return found
