"""Operators of user functions on arrays, whose shapes broadcast.

Arrays of integers are computed with in their own type and lose what its bits do not hold; arrays of
16-bit floats in 32-bit ones, or 64-bit ones where a product is added to, and rounded once. All
others are in the type that 32-bit floats are computed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.ast_model.element_types import rounds
from mapper.ast_model.nodes import CONVERSIONS, Op
from mapper.elements import Element

Array = NDArray[Any]

_COMPARED: dict[Op, np.ufunc] = {
    Op.LT: np.less,
    Op.LE: np.less_equal,
    Op.GT: np.greater,
    Op.GE: np.greater_equal,
    Op.EQ: np.equal,
    Op.NE: np.not_equal,
}


def held_as(element: Element, floats: np.dtype[Any]) -> np.dtype[Any]:
    """The type of an array of such elements, where 32-bit floats are in ``floats``."""
    return floats if element is Element.FLOAT32 else np.dtype(element.value)


def operated(op: Op, operands: Sequence[Array | float], floats: np.dtype[Any]) -> Array:
    """An operator on elements; not those over lanes. Constants have the type of what they stand
    beside, and ``floats`` where that is nothing, as in
    :func:`mapper.ast_model.element_types.typed_body`."""
    known = [o.dtype for o in operands if isinstance(o, np.ndarray) and o.dtype != np.bool_]
    dtype = known[0] if known else floats
    arrays = [o if isinstance(o, np.ndarray) else constant(o, dtype) for o in operands]
    result: Array
    if op in CONVERSIONS:
        result = converted(arrays[0], CONVERSIONS[op], floats)
    elif op is Op.DIV and dtype.kind in "iu":
        result = _divided(*arrays)
    elif dtype == np.float16 and rounds(op, Element.FLOAT16):
        wide = np.float64 if op is Op.FMA else np.float32
        result = elementwise(op, [a.astype(wide) for a in arrays]).astype(np.float16)
    else:
        result = elementwise(op, arrays)
    return np.asarray(result)  # of single numbers NumPy makes no array


def constant(value: float, dtype: np.dtype[Any]) -> Array:
    """A constant as an element of this type."""
    return np.asarray(int(value) if dtype.kind in "iu" else value).astype(dtype)


def converted(array: Array, element: Element, floats: np.dtype[Any]) -> Array:
    """Elements in another type; where it is that of 32-bit floats, as ``floats``."""
    dtype = held_as(element, floats)
    if array.dtype.kind in "iu" or not element.is_integer:
        return array.astype(dtype)
    low, high = element.range
    whole = np.trunc(np.where(np.isnan(array), 0.0, array).astype(np.float64))
    return np.clip(whole, low, high).astype(dtype)


def added_lanes(array: Array) -> Array:
    """The sum over the last axis: of 16-bit floats one after the other, as every sum of them."""
    if array.dtype != np.float16:
        return array.sum(axis=-1, dtype=array.dtype)
    total = array[..., 0]
    for lane in range(1, array.shape[-1]):
        total = operated(Op.ADD, (total, array[..., lane]), total.dtype)
    return total


def _divided(top: Array, bottom: Array) -> Array:
    """Integers, towards zero; 0 where the divisor is."""
    # 64 bits hold what the smallest number by -1 would be.
    n, d = top.astype(np.int64), bottom.astype(np.int64)
    quotient = np.abs(n) // np.maximum(np.abs(d), 1) * np.sign(n) * np.sign(d)
    return quotient.astype(top.dtype)


def elementwise(op: Op, operands: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """An operator in the operands' own types; not those that convert, nor those over lanes."""
    match op:
        case Op.ADD:
            return operands[0] + operands[1]
        case Op.SUB:
            return operands[0] - operands[1]
        case Op.MUL:
            return operands[0] * operands[1]
        case Op.DIV:
            return operands[0] / operands[1]
        case Op.EXP:
            return np.exp(operands[0])
        case Op.SQRT:
            return np.sqrt(operands[0])
        case Op.ABS:
            return np.abs(operands[0])
        case Op.LT | Op.LE | Op.GT | Op.GE | Op.EQ | Op.NE:
            return _COMPARED[op](operands[0], operands[1])
        case Op.SELECT:
            return np.where(operands[0], operands[1], operands[2])
        case Op.MAX:
            return np.maximum(operands[0], operands[1])
        case Op.MIN:
            return np.minimum(operands[0], operands[1])
        case Op.FMA:
            return operands[0] * operands[1] + operands[2]
        case _:
            raise ValueError(f"{op} is not elementwise")
