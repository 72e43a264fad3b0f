"""Checks of workloads and plans before anything reaches a device."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from mapper.elements import Element
from mapper.errors import InputError, Problem
from mapper.host_plan import BufferRole, HostPlan, PlannedBuffer

InputShapes = Mapping[str, tuple[int, ...]]
InputTypes = Mapping[str, np.dtype[Any]]

#: Outputs that a reference knows at least, or all of them.
LEAST_KNOWN = 4096


def output_buffer(plan: HostPlan) -> PlannedBuffer:
    """The plan's only output buffer; raises InputError when there is none or several."""
    outputs = [b for b in plan.buffers if b.role is BufferRole.OUTPUT]
    if len(outputs) != 1:
        names = ", ".join(b.name for b in outputs) or "none"
        raise InputError(
            Problem("plan/buffers", "not exactly one output buffer", found=names, allowed="one")
        )
    return outputs[0]


def check_workload(
    inputs: Mapping[str, np.ndarray[Any, Any]], expected: np.ndarray[Any, Any]
) -> None:
    """Raise InputError unless inputs are of element types and the reference finite floats.

    Of a reference that is not known as a whole, what is not known is NaN.
    """
    problems = [
        Problem(f"inputs/{name}", "of no element type", str(array.dtype), ", ".join(Element))
        for name, array in inputs.items()
        if array.dtype.name not in set(Element)
    ]
    if expected.dtype not in (np.float32, np.float64):
        problems.append(
            Problem("expected", "not floats", str(expected.dtype), "float32 or float64")
        )
    elif not expected.size:
        problems.append(Problem("expected", "is empty", str(expected.shape)))
    elif np.isfinite(expected).sum() < min(expected.size, LEAST_KNOWN) or np.isinf(expected).any():
        problems.append(Problem("expected", "holds NaN or infinity", allowed="finite numbers"))
    if problems:
        raise InputError(problems)


def check_plan(plan: HostPlan, input_shapes: InputShapes, input_types: InputTypes) -> None:
    """Raise InputError with every contradiction within a plan or with its inputs.

    Inputs come in the element type that their buffers store: to round them here would leave
    the reference with other numbers.
    """
    output_buffer(plan)
    problems: list[Problem] = []
    names = [b.name for b in plan.buffers]
    for index, buffer in enumerate(plan.buffers):
        path = f"plan/buffers/{index}"
        element = buffer.dtype.bytes
        needed = max(element * prod(buffer.shape), element)
        if names.index(buffer.name) != index:
            problems.append(Problem(path, "two buffers have one name", buffer.name))
        if buffer.bytes < needed or buffer.bytes % element:
            problems.append(
                Problem(
                    path,
                    f"buffer {buffer.name} has an unusable size",
                    f"{buffer.bytes} bytes",
                    f"a multiple of {element}, at least {needed}",
                )
            )
        if buffer.role is not BufferRole.INPUT:
            continue
        given = input_shapes.get(buffer.name)
        if given != buffer.shape:
            found = "no such input" if given is None else f"shape {given}"
            problems.append(
                Problem(path, f"input {buffer.name} does not fit", found, f"shape {buffer.shape}")
            )
        elif input_types[buffer.name] != np.dtype(buffer.dtype.value):
            found = str(input_types[buffer.name])
            problems.append(
                Problem(path, f"input {buffer.name} has another type", found, buffer.dtype.value)
            )
    if not plan.launches:
        problems.append(Problem("plan/launches", "nothing is launched"))
    for index, launch in enumerate(plan.launches):
        path = f"plan/launches/{index}"
        problems += [
            Problem(path, "an argument names no buffer", argument, ", ".join(names))
            for argument in launch.arguments
            if argument not in names
        ]
        sizes = tuple(zip(launch.global_size, launch.local_size, strict=True))
        if any(local < 1 or size < 1 or size % local for size, local in sizes):
            problems.append(
                Problem(
                    path,
                    "sizes do not divide",
                    f"global {launch.global_size}, local {launch.local_size}",
                    "positive, global a multiple of local in each dimension",
                )
            )
    if problems:
        raise InputError(problems)
