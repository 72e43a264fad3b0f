"""Element types of calls: which 16- and 32-bit floats a user function takes and gives.

Half is for storage: a 16-bit float can be moved (``id``) and converted (``float_of``), and
operators work on 32-bit floats only, so that a program says itself where precision is lost.
"""

from __future__ import annotations

import math
import struct

from mapper.ast_model.nodes import (
    COMPARISONS,
    Apply,
    Call,
    FunctionExpr,
    Node,
    Op,
    Program,
    UserFunction,
    children,
)
from mapper.ast_model.types import ELEMENT_NAMES, element_dtype
from mapper.layer_spec import DType

_AS_NUMBER = "select(…, 1.0, 0.0) makes a number of it"


class WrongElements(Exception):
    """An operator gets elements that it does not work on."""

    def __init__(self, message: str, allowed: str, remedy: str, found: str = "") -> None:
        super().__init__(message)
        self.allowed = allowed
        self.remedy = remedy
        #: Empty where the arguments' own types say it.
        self.found = found


def result_dtype(function: UserFunction, dtypes: tuple[DType, ...]) -> DType:
    """The element type of a call from those of its arguments; WrongElements if it has none."""
    known = dict(zip(function.parameters, dtypes, strict=True))

    def found(body: FunctionExpr) -> DType | None:
        if isinstance(body, str):
            return known[body]
        if isinstance(body, int | float):
            return DType.FLOAT32
        operands = [found(operand) for operand in body.operands]
        if body.op is Op.SELECT:
            return _selected(*operands)
        if None in operands:
            raise WrongElements(
                f"{body.op.value} works on numbers", "float", _AS_NUMBER, "a condition"
            )
        if body.op is Op.TO_FLOAT:
            if operands != [DType.FLOAT16]:
                raise WrongElements("float_of works on 16-bit floats", "half", "leave it out")
            return DType.FLOAT32
        if DType.FLOAT16 in operands:
            raise WrongElements(
                f"{body.op.value} works on 32-bit floats", "float", "float_of(…) of each half"
            )
        if body.op in COMPARISONS:
            return None
        return DType.FLOAT16 if body.op is Op.TO_HALF else DType.FLOAT32

    result = found(function.body)
    if result is None:
        raise WrongElements(
            "conditions are not stored", "float or half", _AS_NUMBER, "a condition as the result"
        )
    return result


def _selected(
    condition: DType | None = None, chosen: DType | None = None, other: DType | None = None
) -> DType:
    """The element type of ``select``; None stands for a condition."""
    if condition is not None:
        found = ELEMENT_NAMES[condition]
        raise WrongElements("select takes a condition first", "a condition", "x != 0.0", found)
    if chosen is None or chosen is not other:
        found = " and ".join(
            "a condition" if t is None else ELEMENT_NAMES[t] for t in (chosen, other)
        )
        raise WrongElements(
            "select chooses between numbers of one type",
            "float and float, or half and half",
            "float_of(…) of a half, select(…, 1.0, 0.0) of a condition",
            found,
        )
    return chosen


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
