"""Limits of a device, as data: what the solver must respect without the device at hand."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Behind a device's name: 16-bit floats may be stored there, whatever it computes with.
HALF_SUFFIX = "+half"
#: The vector widths that OpenCL C has; 3 is left out because it is stored as 4.
VECTOR_WIDTHS = (1, 2, 4, 8, 16)
#: What a device's local memory is: memory of its own, or a part of what every load goes to, behind
#: the same caches. Nothing where that is not known.
LOCAL_MEMORIES = ("own", "ordinary", "")
#: Behind a device's name: what its compiler shall target. Names of processors hold "@ 2.20GHz".
_TARGET_SUFFIX = re.compile(r"(.+)@(?!\s*\d)(.*)", re.DOTALL)
#: The target of a name that ends with "@": none, which whoever knows the targets refuses.
NO_TARGET = "@"


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """What a device allows. Sizes are bytes, counts are work-items.

    ``private_bytes`` bounds the private arrays of one work-item (registers and what
    the compiler may spill) that are alive at once; ``kernel_private_bytes`` all that a kernel
    declares for one work-item, alive or not, what fits into registers eight times, where a device
    keeps private memory on a stack (PoCL); ``vector_widths`` are the OpenCL vector widths worth
    using.
    ``half_precision``: it has 16-bit floats (cl_khr_fp16). ``half_storage``: where it has none,
    they may be stored all the same, and converted as they are loaded and stored, which every
    OpenCL device can do. ``target``: the processor that the device's compiler generates code for
    (LLVM's name, :mod:`mapper.cpu_targets`), where there is a choice and it is known.

    What rules of suitability need (:mod:`mapper.constraint_rules.suits`), None where it is not
    known, so that the rules that need it say nothing: ``lanes``, the work-items that are issued
    together (a warp, a wavefront, a quad; 1 on a processor); ``vector_registers`` of
    ``vector_bytes`` each, those of a processor's core, on a GPU of one work-item;
    ``local_memory``, one of ``LOCAL_MEMORIES``.
    """

    name: str
    max_work_group_size: int
    max_work_item_sizes: tuple[int, int, int]
    local_bytes: int
    private_bytes: int
    max_alloc_bytes: int
    global_bytes: int
    compute_units: int
    vector_widths: tuple[int, ...] = VECTOR_WIDTHS
    half_precision: bool = False
    half_storage: bool = False
    kernel_private_bytes: int | None = None
    source: str = ""
    target: str = ""
    lanes: int | None = None
    vector_registers: int | None = None
    vector_bytes: int | None = None
    local_memory: str = ""

    @property
    def is_processor(self) -> bool:
        """It has a target to generate code for, or keeps private memory on a stack."""
        return bool(self.target) or self.kernel_private_bytes is not None


@dataclass(frozen=True, slots=True)
class DeviceName:
    """A device's name in its parts: ``pocl@haswell+half`` is ``pocl``, ``haswell`` and true.

    ``target`` is in lower case, as all names of targets are, and may be none that there is.
    """

    plain: str
    target: str
    half: bool


def device_name(text: str) -> DeviceName:
    """Take a device's name apart."""
    half = text.endswith(HALF_SUFFIX)
    plain = text.removesuffix(HALF_SUFFIX)
    found = _TARGET_SUFFIX.fullmatch(plain)
    if found is None:
        return DeviceName(plain, "", half)
    return DeviceName(found[1].strip(), found[2].strip().lower() or NO_TARGET, half)
