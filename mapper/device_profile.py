"""Limits of a device, as data: what the solver must respect without the device at hand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """What a device allows. Sizes are bytes, counts are work-items.

    ``private_bytes`` bounds the private arrays of one work-item (registers and what
    the compiler may spill); ``vector_widths`` are the OpenCL vector widths worth using.
    """

    name: str
    max_work_group_size: int
    max_work_item_sizes: tuple[int, int, int]
    local_bytes: int
    private_bytes: int
    max_alloc_bytes: int
    global_bytes: int
    compute_units: int
    vector_widths: tuple[int, ...] = (1, 2, 4, 8, 16)
    half_precision: bool = False
    source: str = ""
