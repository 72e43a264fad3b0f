"""Element types of programs: what they are called, how large they are, what they hold."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from enum import Enum, StrEnum


class Kind(Enum):
    """How an element's bits are read."""

    FLOAT = "float"
    SIGNED = "signed"
    UNSIGNED = "unsigned"


@dataclass(frozen=True, slots=True)
class _Row:
    text: str
    bytes: int
    kind: Kind


class Element(StrEnum):
    """The type of an array's elements; the value is NumPy's name of it.

    Integers are in two's complement; what leaves their range loses its upper bits.
    """

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    UINT32 = "uint32"

    @property
    def text(self) -> str:
        """What it is called in programs; OpenCL C calls it the same."""
        return _ROWS[self].text

    @property
    def bytes(self) -> int:
        """Bytes of one element in global or local memory."""
        return _ROWS[self].bytes

    @property
    def kind(self) -> Kind:
        """How its bits are read."""
        return _ROWS[self].kind

    @property
    def is_integer(self) -> bool:
        """It holds whole numbers."""
        return self.kind is not Kind.FLOAT

    @property
    def held(self) -> Element:
        """What a kernel holds it as in private memory: 16-bit floats as 32-bit ones, which every
        OpenCL device has."""
        return Element.FLOAT32 if self is Element.FLOAT16 else self

    @property
    def range(self) -> tuple[int, int]:
        """The smallest and the largest number of an integer type."""
        bits = 8 * self.bytes
        return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if self.kind is Kind.SIGNED else (
            0, 2**bits - 1)  # fmt: skip

    def holds(self, value: float) -> bool:
        """Whether a constant may stand for an element: of integers whole numbers in range."""
        if not self.is_integer:
            return math.isfinite(value)
        low, high = self.range
        return float(value).is_integer() and low <= value <= high

    def stored(self, value: float) -> float:
        """A constant as an element holds it: rounded to the nearest, ties to even."""
        if self is not Element.FLOAT16:
            return value
        try:
            return struct.unpack("e", struct.pack("e", value))[0]
        except OverflowError:
            return math.copysign(math.inf, value)


_ROWS = {
    Element.FLOAT32: _Row("float", 4, Kind.FLOAT),
    Element.FLOAT16: _Row("half", 2, Kind.FLOAT),
    Element.INT8: _Row("char", 1, Kind.SIGNED),
    Element.UINT8: _Row("uchar", 1, Kind.UNSIGNED),
    Element.INT16: _Row("short", 2, Kind.SIGNED),
    Element.UINT16: _Row("ushort", 2, Kind.UNSIGNED),
    Element.INT32: _Row("int", 4, Kind.SIGNED),
    Element.UINT32: _Row("uint", 4, Kind.UNSIGNED),
}

BY_TEXT = {element.text: element for element in Element}
"""Element types by what programs call them."""
