"""Operators of user functions on arrays, whose shapes broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.ast_model.nodes import Op

_COMPARED: dict[Op, np.ufunc] = {
    Op.LT: np.less,
    Op.LE: np.less_equal,
    Op.GT: np.greater,
    Op.GE: np.greater_equal,
    Op.EQ: np.equal,
    Op.NE: np.not_equal,
}


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
        case Op.TO_FLOAT | Op.TO_HALF | Op.DOT | Op.SUM:
            raise ValueError(f"{op} is not elementwise")
