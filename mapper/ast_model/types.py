"""Types of the IR: scalars, vectors, arrays with symbolic lengths, tuples."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mapper.ast_model.index_expr import Expr, ExprLike, as_expr
from mapper.elements import Element


class Memory(StrEnum):
    """An OpenCL address space."""

    PRIVATE = "private"
    LOCAL = "local"
    GLOBAL = "global"


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A float or an integer."""

    dtype: Element = Element.FLOAT32

    def __str__(self) -> str:
        return self.dtype.text


@dataclass(frozen=True, slots=True)
class VectorType:
    """``width`` scalars that are read, computed and written together (an OpenCL vector)."""

    width: Expr
    dtype: Element = Element.FLOAT32

    def __str__(self) -> str:
        return f"{self.dtype.text}<{self.width}>"


@dataclass(frozen=True, slots=True)
class TupleType:
    """A tuple, as ``zip`` makes them."""

    items: tuple[Type, ...]

    def __str__(self) -> str:
        return "(" + ", ".join(str(item) for item in self.items) + ")"


@dataclass(frozen=True, slots=True)
class ArrayType:
    """``length`` elements."""

    element: Type
    length: Expr

    def __str__(self) -> str:
        return f"[{self.element}]{{{self.length}}}"


Type = ScalarType | VectorType | TupleType | ArrayType

FLOAT = ScalarType()
HALF = ScalarType(Element.FLOAT16)


def array(element: Type, *lengths: ExprLike) -> Type:
    """An array type with the outermost length first: ``array(FLOAT, H, W)`` is [[float]W]H."""
    result = element
    for length in reversed(lengths):
        result = ArrayType(result, as_expr(length))
    return result


def element_dtype(type_: Type) -> Element:
    """What the scalars of an array, vector or scalar are stored as; of a tuple its first."""
    while True:
        match type_:
            case ArrayType():
                type_ = type_.element
            case TupleType():
                type_ = type_.items[0]
            case ScalarType() | VectorType():
                return type_.dtype


def dimensions(type_: Type) -> tuple[tuple[Expr, ...], Type]:
    """The nested array lengths, outermost first, and the element type under them."""
    lengths: list[Expr] = []
    while isinstance(type_, ArrayType):
        lengths.append(type_.length)
        type_ = type_.element
    return tuple(lengths), type_
