"""Small plans for the tests of the worker: one kernel ``k`` from ``a`` to ``b``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mapper.elements import Element
from mapper.host_plan import BufferRole, HostPlan, Launch, PlannedBuffer

SIZE = 64
HEAD = "__kernel void k(__global const float *a, __global float *b) { int i = get_global_id(0); "


def one_kernel_plan(
    body: str,
    *,
    size: int = SIZE,
    group: int = 16,
    output_bytes: int | None = None,
    local_bytes: int = 0,
) -> HostPlan:
    """A plan whose kernel has ``body``; ``i`` is the global id, one work-item an element."""
    return plan_of_source(
        HEAD + body + " }", size=size, group=group, output_bytes=output_bytes, local=local_bytes
    )


def plan_of_source(
    source: str,
    *,
    size: int = SIZE,
    group: int = 16,
    output_bytes: int | None = None,
    local: int = 0,
) -> HostPlan:
    """The same for a whole source text."""
    return HostPlan(
        source,
        (
            PlannedBuffer("a", BufferRole.INPUT, 4 * size, (size,), 0, 0),
            PlannedBuffer("b", BufferRole.OUTPUT, output_bytes or 4 * size, (size,), 0, 0),
        ),
        (Launch("k", (size, 1, 1), (group, 1, 1), ("a", "b"), local_bytes=local),),
    )


def two_kernel_plan() -> HostPlan:
    """Doubles through an intermediate buffer that is larger than its shape needs."""
    return HostPlan(
        "__kernel void first(__global const float *a, __global float *t)"
        "{ t[get_global_id(0) * 2] = a[get_global_id(0)]; }"
        "__kernel void second(__global const float *t, __global float *b)"
        "{ b[get_global_id(0)] = 2 * t[get_global_id(0) * 2]; }",
        (
            PlannedBuffer("a", BufferRole.INPUT, 4 * SIZE, (SIZE,), 0, 0),
            PlannedBuffer("t", BufferRole.INTERMEDIATE, 8 * SIZE, (SIZE,), 0, 1),
            PlannedBuffer("b", BufferRole.OUTPUT, 4 * SIZE, (SIZE,), 1, 1),
        ),
        (
            Launch("first", (SIZE, 1, 1), (16, 1, 1), ("a", "t")),
            Launch("second", (SIZE, 1, 1), (16, 1, 1), ("t", "b")),
        ),
    )


def prepared_plan(packing: str, using: str, *, prepared: bool = True) -> HostPlan:
    """Like :func:`two_kernel_plan`, whose first launch runs once; both bodies have ``i``."""
    plan = two_kernel_plan()
    source = (
        "__kernel void first(__global const float *a, __global float *t)"
        f"{{ int i = get_global_id(0); {packing} }}"
        "__kernel void second(__global float *t, __global float *b)"
        f"{{ int i = get_global_id(0); {using} }}"
    )
    first, second = plan.launches
    return replace(plan, source=source, launches=(replace(first, prepared=prepared), second))


def input_data(size: int = SIZE) -> np.ndarray:
    """Different values, none zero."""
    return np.random.default_rng(1).random(size, dtype=np.float32) + np.float32(1)


DOUBLE = "b[i] = 2 * a[i];"
SEGFAULT = "b[i + (1L << 40)] = a[i];"
ENDLESS = "volatile int go = 1; while (go) ; b[i] = a[i];"


def byte_plan(body: str = "b[i] = 1000003 * (int)a[i];", size: int = SIZE) -> HostPlan:
    """A plan from 8-bit integers to 32-bit ones, of which floats do not hold all."""
    source = "__kernel void k(__global const char *a, __global int *b)"
    return HostPlan(
        f"{source} {{ int i = get_global_id(0); {body} }}",
        (
            PlannedBuffer("a", BufferRole.INPUT, size, (size,), 0, 0, Element.INT8),
            PlannedBuffer("b", BufferRole.OUTPUT, 4 * size, (size,), 0, 0, Element.INT32),
        ),
        (Launch("k", (size, 1, 1), (16, 1, 1), ("a", "b")),),
    )


def byte_workload(size: int = SIZE) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and reference of :func:`byte_plan`."""
    data = (np.arange(size) * 37 % 251 - 125).astype(np.int8)
    return data, 1000003.0 * data
