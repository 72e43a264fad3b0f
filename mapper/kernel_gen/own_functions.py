"""Functions that a generated source defines before its kernels.

Vectors at any address are loaded and stored lane by lane in the source: compilers make one
instruction of it. OpenCL's own ``vload`` and ``vstore`` stay calls in PoCL wherever its library
was compiled for other instructions than the machine has; and in private arrays they go wrong there
(:data:`PRIVATE`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mapper.kernel_gen.identifiers import lane_name

#: Quirk ``private-vstore``: PoCL 3.0-rc2 (LLVM 14) loses what vstore has put into a private array
#: of numbers where its numbers are read later (for every target into whose code LLVM inlines PoCL's
#: functions, docs/soundness.md; right without the optimiser, in PoCL 3.1 and in Intel's runtime).
#: So such arrays are written and read number by number, on every device: in registers that is the
#: same.
PRIVATE = "private"


class Kind(StrEnum):
    """What a function does."""

    TO_HALF = "to_half"
    LOAD = "load"
    STORE = "store"


@dataclass(frozen=True, slots=True, order=True)
class OwnFunction:
    """One function for vectors of ``width`` floats (1: for a float), in global memory or
    :data:`PRIVATE`."""

    kind: Kind
    width: int
    space: str = "global"

    @property
    def name(self) -> str:
        """What it is called in the source."""
        place = "" if self.space == "global" else f"_{self.space}"
        return f"{self.kind.value}{'' if self.width == 1 else self.width}{place}"

    @property
    def text(self) -> str:
        """Its definition."""
        type_ = f"float{'' if self.width == 1 else self.width}"
        lanes = range(self.width)
        match self.kind:
            case Kind.TO_HALF:
                return _rounding(self.name, type_, "" if self.width == 1 else str(self.width))
            case Kind.LOAD:
                values = ", ".join(f"p[{lane}]" for lane in lanes)
                head = f"{type_} {self.name}(const __{self.space} float *p)"
                return f"{head}\n{{\n    return ({type_})({values});\n}}\n"
            case Kind.STORE:
                stores = "".join(f"    p[{lane}] = x.{lane_name(lane)};\n" for lane in lanes)
                return f"void {self.name}({type_} x, __{self.space} float *p)\n{{\n{stores}}}\n"


def _rounding(name: str, type_: str, lanes: str) -> str:
    """The nearest 16-bit floats."""
    return (
        f"{type_} {name}({type_} x)\n{{\n"
        f"    ushort{lanes} bits;\n"
        f"    vstore_half{lanes}_rte(x, 0, (half *)&bits);\n"
        f"    return vload_half{lanes}(0, (const half *)&bits);\n}}\n"
    )
