"""Whether kernels come out right for a target: ``python -m worker.devices.pocl_probe TARGET``.

Runs in a child of :mod:`worker.devices.pocl_target`, because a wrong target ends a process. Vectors
of 4, 8 and 16 are loaded, computed with, passed by value to functions of ours and of the kernel
library, and stored, as floats, as integers and as 16-bit floats; every lane is compared. All values
are small integers, so that nothing is rounded. Prints JSON objects, a line each: what was set, then
``fault``, empty if every lane is right.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from worker.devices.pocl_target import (
    NATIVE,
    Choice,
    apply,
    cpu_flags,
    first_choice,
    is_known_build,
    library_by_flags,
    library_of_target,
    load,
    told_name,
    wheel_library,
)

_WIDTHS = (4, 8, 16)
_ITEMS = 8
_GROUP = 4

_Array = np.ndarray[Any, Any]
_Results = tuple[Callable[[_Array, _Array, _Array], _Array], ...]

#: Expressions over three vectors, and what they are. ``own`` is a function that is never inlined.
_FLOAT: tuple[tuple[str, Callable[[_Array, _Array, _Array], _Array]], ...] = (
    ("x*y + z", lambda x, y, z: x * y + z),
    ("x - y", lambda x, y, z: x - y),
    ("fma(x, y, z)", lambda x, y, z: x * y + z),
    ("fmax(x, fabs(y))", lambda x, y, z: np.maximum(x, abs(y))),
    ("own(x, y, z)", lambda x, y, z: x * z - y),
)
_INT: tuple[tuple[str, Callable[[_Array, _Array, _Array], _Array]], ...] = (
    ("x*y + z", lambda x, y, z: x * y + z),
    ("x - y", lambda x, y, z: x - y),
    ("max(x, y)", lambda x, y, z: np.maximum(x, y)),
    ("own(x, y, z)", lambda x, y, z: x * z - y),
)


def _kernel(element: str, width: int, expressions: Sequence[str], half: bool) -> str:
    """A kernel that writes every expression's vectors, and its first input once more as it is."""
    vector = f"{element}{width}"
    load, pointer = (f"vload_half{width}", "half") if half else (f"vload{width}", element)
    store = f"vstore_half{width}_rte" if half else f"vstore{width}"
    count = len(expressions) + 1
    lines = [
        f"__attribute__((noinline)) {vector} own_{_name(element, width, half)}"
        f"({vector} x, {vector} y, {vector} z) {{ return x*z - y; }}",
        f"__kernel void {_name(element, width, half)}(__global const {pointer} *a, "
        f"__global const {pointer} *b, __global const {pointer} *c, __global {pointer} *out) {{",
        "  const size_t i = get_global_id(0);",
        *(
            f"  const {vector} {name} = {load}(i, {array});"
            for name, array in zip("xyz", "abc", strict=True)
        ),
    ]
    for place, expression in enumerate(expressions):
        text = expression.replace("own", f"own_{_name(element, width, half)}")
        lines.append(f"  {store}({text}, {count}*i + {place}, out);")
    if half:
        lines.append(f"  {store}(x, {count}*i + {count - 1}, out);")
    else:
        lines.append(
            f"  ((__global {vector} *)out)[{count}*i + {count - 1}] = "
            f"((__global const {vector} *)a)[i];"
        )
    return "\n".join((*lines, "}\n"))


def _name(element: str, width: int, half: bool) -> str:
    return f"of_{'half' if half else element}{width}"


def fault_of(device: Any) -> str:
    """What comes out wrong on a device (pyopencl's object); empty if nothing does."""
    import pyopencl as cl

    kinds = (("float", np.float32, _FLOAT), ("int", np.int32, _INT), ("half", np.float16, _FLOAT))
    source = ""
    for kind, _, cases in kinds:
        for width in _WIDTHS:
            element = "float" if kind == "half" else kind
            source += _kernel(element, width, [text for text, _ in cases], kind == "half")
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = cl.Program(context, source).build()
    except cl.Error as error:
        return f"nothing builds: {_error_line(str(error))}"
    flags = cl.mem_flags.READ_WRITE
    rng = np.random.default_rng(2024)
    for kind, dtype, cases in kinds:
        for width in _WIDTHS:
            inputs = [rng.integers(-16, 16, _ITEMS * width).astype(dtype) for _ in range(3)]
            result = np.full((_ITEMS, len(cases) + 1, width), -999, dtype)
            buffers = [cl.Buffer(context, flags, size=array.nbytes) for array in (*inputs, result)]
            for buffer, array in zip(buffers, (*inputs, result), strict=True):
                cl.enqueue_copy(queue, buffer, array)
            kernel = cl.Kernel(program, _name(kind, width, kind == "half"))
            kernel.set_args(*buffers)
            cl.enqueue_nd_range_kernel(queue, kernel, (_ITEMS,), (_GROUP,))
            cl.enqueue_copy(queue, result, buffers[-1])
            vectors = [array.reshape(_ITEMS, width) for array in inputs]
            expected = [(text, what(*vectors)) for text, what in cases]
            for place, (text, lanes) in enumerate([*expected, ("a copy of x", vectors[0])]):
                wrong = np.unique(np.argwhere(result[:, place] != lanes)[:, 1])
                if wrong.size:
                    which = ", ".join(str(lane) for lane in wrong)
                    return f"{text} of {kind}{width}: lanes {which} are wrong"
    return ""


def _error_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if "error" in line.lower()]
    return (lines or [text.strip()])[0][:200]


def _say(**values: str) -> None:
    print(json.dumps(values), flush=True)


def main() -> int:
    """Probe the target that the command line names."""
    wanted = sys.argv[1]
    flags = cpu_flags()
    path = wheel_library()
    told = told_name(str(path)) if wanted == NATIVE and path is not None else ""
    if wanted == NATIVE:
        target, library = first_choice(flags, told)
        if library is not library_by_flags(flags):
            # libpocl is loaded now, with the library of its own choice: begin anew.
            os.execv(sys.executable, [sys.executable, "-m", "worker.devices.pocl_probe", target])
    else:
        target, library = wanted, library_of_target(wanted)
        assert library is not None
    choice = Choice(target, library.name, told, "")
    load(choice)
    import pyopencl as cl

    platform = next((p for p in cl.get_platforms() if is_known_build(p.version)), None)
    if platform is None:
        _say(fault="PyPI's PoCL is not among the platforms")
        return 1
    device = platform.get_devices()[0]
    told = told_name()
    left = apply(choice, device.int_ptr)
    used = told if left else target
    _say(target=used, library=library.name, told=told, left=left)
    if left and wanted != NATIVE:
        _say(fault=f"it cannot be set: {left}")
        return 1
    _say(fault=fault_of(device))
    return 0


if __name__ == "__main__":
    # Skip clean-up: a driver whose kernels go wrong may crash in it, after the answer was given.
    status = main()
    sys.stdout.flush()
    os._exit(status)
