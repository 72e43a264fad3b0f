"""Functions that a generated source defines before its kernels.

Vectors at any address are loaded and stored lane by lane in the source: compilers make one
instruction of it. OpenCL's own ``vload`` and ``vstore`` stay calls in PoCL wherever its library
was compiled for other instructions than the machine has.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mapper.kernel_gen.identifiers import lane_name


class Kind(StrEnum):
    """What a function does."""

    TO_HALF = "to_half"
    LOAD = "load"
    STORE = "store"


@dataclass(frozen=True, slots=True, order=True)
class OwnFunction:
    """One function for vectors of ``width`` floats (1: for a float)."""

    kind: Kind
    width: int

    @property
    def name(self) -> str:
        """What it is called in the source."""
        return f"{self.kind.value}{'' if self.width == 1 else self.width}"

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
                head = f"{type_} {self.name}(const __global float *p)"
                return f"{head}\n{{\n    return ({type_})({values});\n}}\n"
            case Kind.STORE:
                stores = "".join(f"    p[{lane}] = x.{lane_name(lane)};\n" for lane in lanes)
                return f"void {self.name}({type_} x, __global float *p)\n{{\n{stores}}}\n"


def _rounding(name: str, type_: str, lanes: str) -> str:
    """The nearest 16-bit floats."""
    return (
        f"{type_} {name}({type_} x)\n{{\n"
        f"    ushort{lanes} bits;\n"
        f"    vstore_half{lanes}_rte(x, 0, (half *)&bits);\n"
        f"    return vload_half{lanes}(0, (const half *)&bits);\n}}\n"
    )
