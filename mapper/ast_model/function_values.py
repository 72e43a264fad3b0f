"""User functions applied to values: lanes side by side, sums over lanes."""

from __future__ import annotations

from collections.abc import Iterator

from mapper.ast_model.element_types import Typed, typed_body
from mapper.ast_model.loop_nest import Constant, Guarded, LaneSum, Load, Operate, Value, loads
from mapper.ast_model.nodes import Op, UserFunction
from mapper.ast_model.types import ScalarType, Type, VectorType, element_dtype
from mapper.ast_model.views import ScalarView, lane_symbol


def apply_function(function: UserFunction, operands: list[ScalarView]) -> tuple[Value, Type]:
    """The value and type of a call; DOT and SUM become sums over lanes."""
    widths = [o.type.width for o in operands if isinstance(o.type, VectorType)]
    bound = dict(zip(function.parameters, (o.value for o in operands), strict=True))

    def build(body: Typed) -> Value:
        match body.value:
            case Op():
                op, parts = body.value, tuple(build(operand) for operand in body.operands)
                if op not in (Op.DOT, Op.SUM):
                    return Operate(op, parts, body.dtype)
                summed = Operate(Op.MUL, parts, body.dtype) if op is Op.DOT else parts[0]
                # Scalars have one lane, also in a call that has vectors beside them.
                if any(_varies(operand, function, operands) for operand in body.operands):
                    return LaneSum(lane_symbol(widths[0]), summed)
                return summed
            case str():
                return bound[body.value]
            case _:
                return Constant(float(body.value), body.dtype)

    typed = typed_body(function, tuple(element_dtype(o.type) for o in operands))
    value = build(typed)
    if bool(widths) and _varies(typed, function, operands):
        return value, VectorType(widths[0], typed.dtype)
    return value, ScalarType(typed.dtype)


def loads_in_lane_sums(value: Value) -> Iterator[Load]:
    """Loads whose every lane goes into one sum."""
    match value:
        case Constant() | Load():
            return
        case LaneSum():
            yield from loads(value.value)
        case Guarded():
            yield from loads_in_lane_sums(value.value)
        case Operate():
            for operand in value.operands:
                yield from loads_in_lane_sums(operand)


def _varies(body: Typed, function: UserFunction, operands: list[ScalarView]) -> bool:
    """True if the result is a vector: it depends on a vector operand outside DOT and SUM."""
    match body.value:
        case Op():
            if body.value in (Op.DOT, Op.SUM):
                return False
            return any(_varies(operand, function, operands) for operand in body.operands)
        case str():
            return isinstance(operands[function.parameters.index(body.value)].type, VectorType)
        case _:
            return False
