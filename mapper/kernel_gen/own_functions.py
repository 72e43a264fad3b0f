"""Functions that a generated source defines before its kernels.

Vectors at any address are loaded and stored lane by lane in the source: compilers make one
instruction of it. OpenCL's own ``vload`` and ``vstore`` stay calls in PoCL wherever its library
was compiled for other instructions than the machine has; and in private arrays they go wrong there
(:data:`PRIVATE`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from mapper.device_profile import VECTOR_WIDTHS
from mapper.elements import Element
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
    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    TO_INTEGER = "to"


_UNSIGNED = {1: "uint8", 2: "uint16", 4: "uint32"}
#: Integers that wrap around: C leaves open what signed ones do that overflow.
_WRAPPING = {Kind.ADD: "+", Kind.SUB: "-", Kind.MUL: "*"}


@dataclass(frozen=True, slots=True, order=True)
class OwnFunction:
    """One function for vectors of ``width`` elements (1: for a single one), in global memory or
    :data:`PRIVATE`."""

    kind: Kind
    width: int
    space: str = "global"
    element: Element = Element.FLOAT32

    @property
    def name(self) -> str:
        """What it is called in the source."""
        place = "" if self.space == "global" else f"_{self.space}"
        of = "" if self.element is Element.FLOAT32 else f"_{self.element.text}"
        return f"{self.kind.value}{of}{_lanes(self.width)}{place}"

    @property
    def needs(self) -> Iterator[OwnFunction]:
        """The functions that its definition calls."""
        if self.kind is Kind.DIV and self.width > 1:
            yield OwnFunction(Kind.DIV, 1, element=self.element)

    @property
    def text(self) -> str:
        """Its definition."""
        single = self.element.text
        type_ = f"{single}{_lanes(self.width)}"
        lanes = range(self.width)
        match self.kind:
            case Kind.TO_HALF:
                return _rounding(self.name, type_, _lanes(self.width))
            case Kind.LOAD:
                values = ", ".join(f"p[{lane}]" for lane in lanes)
                head = f"{type_} {self.name}(const __{self.space} {single} *p)"
                return f"{head}\n{{\n    return ({type_})({values});\n}}\n"
            case Kind.STORE:
                stores = "".join(f"    p[{lane}] = x.{lane_name(lane)};\n" for lane in lanes)
                return f"void {self.name}({type_} x, __{self.space} {single} *p)\n{{\n{stores}}}\n"
            case Kind.ADD | Kind.SUB | Kind.MUL:
                sign = _WRAPPING[self.kind]
                result = f"({type_})((uint)x {sign} (uint)y)"
                if self.width > 1:
                    bits = f"as_{Element(_UNSIGNED[self.element.bytes]).text}{self.width}"
                    result = f"as_{type_}({bits}(x) {sign} {bits}(y))"
                return _two_operands(self.name, type_, result)
            case Kind.DIV:
                # Towards zero. x / 0 is 0, and x / -1 the same as 0 - x: neither may trap.
                result = "y == 0 ? 0 : x / y"
                if self.element.range[0] < 0:
                    result = f"y == 0 ? 0 : y == -1 ? ({type_})(0u - (uint)x) : ({type_})(x / y)"
                if self.width > 1:
                    (one,) = self.needs
                    parts = (f"{one.name}(x.{lane_name(k)}, y.{lane_name(k)})" for k in lanes)
                    result = f"({type_})({', '.join(parts)})"
                return _two_operands(self.name, type_, result)
            case Kind.TO_INTEGER:
                # Of NaN OpenCL says that it should be 0; PoCL's uint is the largest.
                floats = f"float{_lanes(self.width)}"
                known = "x == x ? x : 0.0f"
                if self.width > 1:
                    known = f"select(({floats})(0.0f), x, x == x)"
                result = f"convert_{type_}_sat_rtz({known})"
                return f"{type_} {self.name}({floats} x)\n{{\n    return {result};\n}}\n"


def _two_operands(name: str, type_: str, result: str) -> str:
    return f"{type_} {name}({type_} x, {type_} y)\n{{\n    return {result};\n}}\n"


def defined(functions: Iterable[OwnFunction]) -> list[OwnFunction]:
    """These functions and what they call, in an order in which they can be defined."""
    return sorted({*functions, *(needed for function in functions for needed in function.needs)})


def every_function() -> Iterator[OwnFunction]:
    """All functions that a source can have of its own."""
    for width in VECTOR_WIDTHS:
        yield OwnFunction(Kind.TO_HALF, width)
        for element in Element:
            for space in ("global", PRIVATE):
                yield OwnFunction(Kind.LOAD, width, space, element.held)
                yield OwnFunction(Kind.STORE, width, space, element.held)
            if element.is_integer:
                for kind in (*_WRAPPING, Kind.DIV, Kind.TO_INTEGER):
                    yield OwnFunction(kind, width, element=element)


def _lanes(width: int) -> str:
    return "" if width == 1 else str(width)


def _rounding(name: str, type_: str, lanes: str) -> str:
    """The nearest 16-bit floats."""
    return (
        f"{type_} {name}({type_} x)\n{{\n"
        f"    ushort{lanes} bits;\n"
        f"    vstore_half{lanes}_rte(x, 0, (half *)&bits);\n"
        f"    return vload_half{lanes}(0, (const half *)&bits);\n}}\n"
    )
