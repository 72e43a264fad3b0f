"""What an OpenCL status code means for a candidate."""

from __future__ import annotations

import re
from typing import Any

from mapper.measurement import CompileError, Crash, Outcome, ResourceError

_RESOURCE_CODES = frozenset(
    {
        "OUT_OF_RESOURCES",
        "OUT_OF_HOST_MEMORY",
        "MEM_OBJECT_ALLOCATION_FAILURE",
        "INVALID_BUFFER_SIZE",
        "INVALID_WORK_GROUP_SIZE",
        "INVALID_WORK_ITEM_SIZE",
        "INVALID_WORK_DIMENSION",
        "INVALID_GLOBAL_WORK_SIZE",
    }
)
_COMPILE_CODES = frozenset(
    {
        "BUILD_PROGRAM_FAILURE",
        "COMPILE_PROGRAM_FAILURE",
        "LINK_PROGRAM_FAILURE",
        "COMPILER_NOT_AVAILABLE",
        "INVALID_BUILD_OPTIONS",
        "INVALID_PROGRAM_EXECUTABLE",
        "INVALID_KERNEL_NAME",
        "INVALID_KERNEL_DEFINITION",
        "INVALID_KERNEL_ARGS",
        "INVALID_ARG_INDEX",
        "INVALID_ARG_VALUE",
        "INVALID_ARG_SIZE",
    }
)
#: Build logs of generated kernels can be megabytes; the first errors matter.
_MESSAGE_CHARACTERS = 8000


class PlanFailure(Exception):
    """A candidate cannot be built or run.

    ``outcome`` says why; ``retire`` asks for a fresh process, because the driver's context
    cannot be trusted any more.
    """

    def __init__(self, outcome: Outcome, *, retire: bool = False) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome
        self.retire = retire


def status_name(code: int) -> str:
    """The name of an OpenCL status code without its ``CL_``, or the number as text."""
    import pyopencl as cl

    try:
        return str(cl.status_code.to_string(code))
    except (ValueError, KeyError):
        return str(code)


def _without_places(text: str) -> str:
    """An error text without addresses and temporary paths, so that equal errors are equal."""
    # pyopencl's first line repeats the status; its last says where its own headers are.
    lines = [line for line in text.splitlines() if not line.startswith(("(options:", "Build on"))]
    text = "\n".join(lines[1:] if len(lines) > 1 else lines)
    text = re.sub(r"\S*/tempfile_\w+\.cl", "kernel.cl", text)
    return re.sub(r" at 0x[0-9a-f]+", "", text).strip()


def plan_failure(error: Any, doing: str, *, running: bool = False) -> PlanFailure:
    """The failure behind a ``pyopencl.Error`` that came while ``doing`` something.

    ``running``: kernels were enqueued. A driver reports a kernel's illegal access then, as
    a lack of resources or by invalidating the queue, and the context is lost.
    """
    name = status_name(error.code)
    message = f"{doing}: CL_{name}"
    detail = _without_places(str(error))
    if name in _COMPILE_CODES:
        return PlanFailure(CompileError(f"{message}\n{detail}"[:_MESSAGE_CHARACTERS]))
    if name in _RESOURCE_CODES:
        return PlanFailure(ResourceError(message), retire=running)
    return PlanFailure(Crash(1, f"{message}; {detail}"[:_MESSAGE_CHARACTERS]), retire=True)
