"""Element types inside user functions: what operators take and give, and the type of constants.

Nothing is converted by itself: an operator works on numbers of one type, and a program says
(``int_of``, ``half_of``) where numbers get another. A constant has the type of what it stands
beside; beside constants alone it is a 32-bit float.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mapper.ast_model.nodes import (
    COMPARISONS,
    CONVERSIONS,
    Apply,
    Call,
    Fill,
    FunctionExpr,
    Literal,
    Node,
    Op,
    Program,
    UserFunction,
    children,
)
from mapper.ast_model.types import element_dtype
from mapper.elements import Element

_AS_NUMBER = "select(…, 1.0, 0.0) makes a number of it"
_OF_FLOATS = (Op.EXP, Op.SQRT)
#: Operators that give one of their operands, or one without its sign: nothing is rounded.
_EXACT = (Op.MAX, Op.MIN, Op.ABS, Op.SELECT, *COMPARISONS)


class WrongElements(Exception):
    """An operator gets elements that it does not work on."""

    def __init__(self, message: str, allowed: str, remedy: str, found: str = "") -> None:
        super().__init__(message)
        self.allowed = allowed
        self.remedy = remedy
        #: Empty where the arguments' own types say it.
        self.found = found


@dataclass(frozen=True, slots=True)
class Typed:
    """A function's body with its types: a parameter's name, a constant, or an operator on such.

    ``dtype`` of a comparison is what it compares, and ``is_condition`` is true.
    """

    value: str | float | Op
    dtype: Element
    operands: tuple[Typed, ...] = ()

    @property
    def is_condition(self) -> bool:
        """It holds or not, and is no number."""
        return isinstance(self.value, Op) and self.value in COMPARISONS


def typed_body(function: UserFunction, dtypes: tuple[Element, ...]) -> Typed:
    """A function's body where its arguments have these types; WrongElements if it has no type."""
    result = _typed(function.body, dict(zip(function.parameters, dtypes, strict=True)))
    if result.is_condition:
        raise WrongElements(
            "conditions are not stored", "a number", _AS_NUMBER, "a condition as the result"
        )
    return result


def rounds(op: Op, dtype: Element) -> bool:
    """Whether an operator with a result of this type rounds it to 16 bits."""
    return dtype is Element.FLOAT16 and op not in _EXACT


def uses_half(program: Program) -> bool:
    """True if 16-bit floats occur in a program: in an input, a constant, or made of others."""
    if any(element_dtype(i.type) is Element.FLOAT16 for i in program.inputs):
        return True
    stack: list[Node] = [kernel.body for kernel in program.kernels]
    while stack:
        node = stack.pop()
        if isinstance(node, Literal | Fill) and node.dtype is Element.FLOAT16:
            return True
        if isinstance(node, Call):
            function = program.function(node.function)
            if function is not None and _converts_to_half(function.body):
                return True
        stack += [child for _, child in children(node)]
    return False


def _converts_to_half(body: FunctionExpr) -> bool:
    return isinstance(body, Apply) and (
        body.op is Op.TO_HALF or any(_converts_to_half(operand) for operand in body.operands)
    )


def _typed(
    body: FunctionExpr, known: Mapping[str, Element], beside: Element = Element.FLOAT32
) -> Typed:
    match body:
        case str():
            return Typed(body, known[body])
        case Apply():
            return _operated(body, known)
        case _:
            return _constant(body, beside)


def _constant(value: float, dtype: Element) -> Typed:
    if not dtype.holds(value):
        low, high = dtype.range
        raise WrongElements(
            f"{value:g} is no {dtype.text}", f"whole numbers from {low} to {high}",
            "float_of(…) of what stands beside it", f"{value:g} beside {dtype.text}",
        )  # fmt: skip
    return Typed(dtype.stored(value), dtype)


def _operated(body: Apply, known: Mapping[str, Element]) -> Typed:
    """An operator on its operands: constants come last, when the others' type is known."""
    op = body.op
    parts = {
        position: _typed(operand, known)
        for position, operand in enumerate(body.operands)
        if isinstance(operand, str | Apply)
    }
    condition = parts.get(0) if op is Op.SELECT else None
    if op is Op.SELECT and (condition is None or not condition.is_condition):
        text = "a constant" if condition is None else condition.dtype.text
        raise WrongElements("select takes a condition first", "a condition", "x != 0.0", text)
    numbers = [part for part in parts.values() if part is not condition]
    _require_one_type(op, numbers)
    beside = numbers[0].dtype if numbers else Element.FLOAT32
    operands = tuple(
        parts[position] if position in parts else _typed(operand, known, beside)
        for position, operand in enumerate(body.operands)
    )
    dtype = operands[-1].dtype
    if op in CONVERSIONS:
        if dtype is CONVERSIONS[op]:
            raise WrongElements(f"{op.value} changes no {dtype.text}", "another type",
                                "leave it out")  # fmt: skip
        dtype = CONVERSIONS[op]
    elif op in _OF_FLOATS and dtype.is_integer:
        raise WrongElements(f"{op.value} works on floats", "float, half", "float_of(…) of it")
    return Typed(op, dtype, operands)


def _require_one_type(op: Op, numbers: list[Typed]) -> None:
    if len({n.dtype for n in numbers}) > 1 or any(n.is_condition for n in numbers):
        texts = ["a condition" if n.is_condition else n.dtype.text for n in numbers]
        does = "chooses between" if op is Op.SELECT else "works on"
        conditions = any(n.is_condition for n in numbers)
        raise WrongElements(
            f"{op.value} {does} numbers of one type",
            "float and float, int and int and so on",
            _AS_NUMBER if conditions else "float_of(…), int_of(…) and so on convert",
            " and ".join(texts),
        )
