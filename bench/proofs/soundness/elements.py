"""A program of 32-bit floats as one of another element type, with constants that it holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mapper.ast_model.nodes import (
    Apply,
    Fill,
    FunctionExpr,
    Literal,
    Node,
    Pad,
    Program,
    children,
)
from mapper.ast_model.types import ArrayType, ScalarType, Type, VectorType
from mapper.elements import Element


def of_element(program: Program, element: Element) -> Program:
    """The program with inputs, constants and all between of this type.

    Constants of integers are cut to whole numbers of the range; those below 1 become 3.
    """
    if element is Element.FLOAT32:
        return program
    return replace(
        program,
        inputs=tuple(replace(i, type=_type(i.type, element)) for i in program.inputs),
        functions=tuple(replace(f, body=_body(f.body, element)) for f in program.functions),
        kernels=tuple(replace(k, body=_node(k.body, element)) for k in program.kernels),
    )


def _type(type_: Type, element: Element) -> Type:
    match type_:
        case ArrayType():
            return replace(type_, element=_type(type_.element, element))
        case ScalarType() | VectorType():
            return replace(type_, dtype=element)
        case _:
            raise ValueError(f"{type_} is no input")


def _body(body: FunctionExpr, element: Element) -> FunctionExpr:
    match body:
        case str():
            return body
        case Apply():
            return replace(body, operands=tuple(_body(o, element) for o in body.operands))
        case _:
            return _constant(body, element)


def _node(node: Node, element: Element) -> Node:
    if isinstance(node, Literal | Fill):
        return replace(node, value=_constant(node.value, element), dtype=element)
    if isinstance(node, Pad):
        node = replace(node, value=_constant(node.value, element))
    changed: dict[str, Any] = {}
    for path, child in children(node):
        name, _, index = path.partition("/")
        if index:
            changed.setdefault(name, []).append(_node(child, element))
        else:
            changed[name] = _node(child, element)
    return replace(node, **{n: tuple(c) if isinstance(c, list) else c for n, c in changed.items()})


def _constant(value: float, element: Element) -> float:
    if not element.is_integer:
        return value
    low, high = element.range
    whole = float(int(value)) if value == 0 or abs(value) >= 1 else 3.0
    return float(min(max(whole, low), high))
