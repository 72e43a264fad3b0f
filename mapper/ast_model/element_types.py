"""Element types of calls: which 16- and 32-bit floats a user function takes and gives.

Half is for storage: a 16-bit float can be moved (``id``) and converted (``float_of``), and
operators work on 32-bit floats only, so that a program says itself where precision is lost.
"""

from __future__ import annotations

import math
import struct

from mapper.ast_model.nodes import (
    Apply,
    Call,
    FunctionExpr,
    Node,
    Op,
    Program,
    UserFunction,
    children,
)
from mapper.ast_model.types import element_dtype
from mapper.layer_spec import DType


class WrongElements(Exception):
    """An operator gets elements that it does not work on."""

    def __init__(self, message: str, allowed: str, remedy: str) -> None:
        super().__init__(message)
        self.allowed = allowed
        self.remedy = remedy


def result_dtype(function: UserFunction, dtypes: tuple[DType, ...]) -> DType:
    """The element type of a call from those of its arguments; WrongElements if it has none."""
    known = dict(zip(function.parameters, dtypes, strict=True))

    def found(body: FunctionExpr) -> DType:
        if isinstance(body, str):
            return known[body]
        if isinstance(body, int | float):
            return DType.FLOAT32
        operands = [found(operand) for operand in body.operands]
        if body.op is Op.TO_FLOAT:
            if operands != [DType.FLOAT16]:
                raise WrongElements("float_of works on 16-bit floats", "half", "leave it out")
            return DType.FLOAT32
        if DType.FLOAT16 in operands:
            raise WrongElements(
                f"{body.op.value} works on 32-bit floats", "float", "float_of(…) of each half"
            )
        return DType.FLOAT16 if body.op is Op.TO_HALF else DType.FLOAT32

    return found(function.body)


def uses_half(program: Program) -> bool:
    """True if 16-bit floats occur in a program: as an input, or made by a user function."""
    if any(element_dtype(i.type) is DType.FLOAT16 for i in program.inputs):
        return True
    return half_roundings(program) > 0


def half_roundings(program: Program) -> int:
    """In how many places a program rounds to 16-bit floats; a value passes each once at most."""
    found = 0
    stack: list[Node] = [kernel.body for kernel in program.kernels]
    while stack:
        node = stack.pop()
        if isinstance(node, Call):
            function = program.function(node.function)
            found += 0 if function is None else _roundings(function.body)
        stack += [child for _, child in children(node)]
    return found


def _roundings(body: FunctionExpr) -> int:
    if not isinstance(body, Apply):
        return 0
    return (body.op is Op.TO_HALF) + sum(_roundings(operand) for operand in body.operands)


def stored_value(value: float, dtype: DType) -> float:
    """A constant as an element of this type holds it: rounded to the nearest, ties to even."""
    if dtype is DType.FLOAT32:
        return value
    try:
        return struct.unpack("e", struct.pack("e", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
