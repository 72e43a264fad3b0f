"""Programs as readable text: the printer (the parser is ``text_form.py``)."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import assert_never

from mapper.ast_model.index_expr import Expr
from mapper.ast_model.nodes import (
    COMPARISONS,
    Apply,
    AsScalar,
    AsVector,
    Call,
    Fill,
    FunctionExpr,
    Get,
    Join,
    Let,
    Literal,
    Map,
    MapId,
    Node,
    Op,
    OrderKind,
    Pad,
    Parameter,
    Program,
    Reduce,
    Ref,
    Reorder,
    Slide,
    Split,
    To,
    Transpose,
    Zip,
)
from mapper.ast_model.types import ArrayType, ScalarType, TupleType, Type, VectorType
from mapper.elements import Element

WIDTH = 92
# Deeper lines stand no further right: the text of a deep program would be mostly blank.
MAX_INDENT = 30

Lines = list[tuple[int, str]]


def to_text(program: Program) -> str:
    """The program in the text form; :func:`mapper.ast_model.text_form.parse` reads it back."""
    lines: Lines = [(1, f"size {name} = {value}") for name, value in program.sizes]
    lines += [(1, f"param {p.name} in {_values_text(p)}") for p in program.parameters]
    lines += [(1, f"require {requirement}") for requirement in program.requirements]
    for function in program.functions:
        parameters = ", ".join(function.parameters)
        lines.append((1, f"fun {function.name}({parameters}) = {function_text(function.body)}"))
    lines += [(1, f"input {i.name} : {type_text(i.type)}") for i in program.inputs]
    lines += [(1, f"constant {name}") for name in program.constants]
    for kernel in program.kernels:
        lines += _indented(_after(f"kernel {kernel.name} = ", _node_lines(kernel.body)))
    body = "".join("  " * min(depth, MAX_INDENT) + text + "\n" for depth, text in lines)
    return f"program {json.dumps(program.name)} {{\n{body}}}\n"


def type_text(type_: Type) -> str:
    """``[[[float]C]W]H``: an array of H of W of C floats."""
    match type_:
        case ScalarType() | VectorType():
            return str(type_)
        case TupleType(items):
            return "(" + ", ".join(type_text(item) for item in items) + ")"
        case ArrayType(element, length):
            return f"[{type_text(element)}]{_length_text(length)}"
        case _:
            assert_never(type_)


def function_text(body: FunctionExpr) -> str:
    """A user function's body with as few parentheses as the grammar needs."""
    match body:
        case str():
            return body
        case float() | int():
            return repr(float(body))
        case Apply(op, (left, right)) if op in COMPARISONS:
            first, second = (_operand_text(side, COMPARISONS) for side in (left, right))
            return f"{first} {op.value} {second}"
        case Apply(Op.ADD | Op.SUB as op, (left, right)):
            first = _operand_text(left, COMPARISONS)
            return f"{first} {op.value} {_operand_text(right, (*COMPARISONS, Op.ADD, Op.SUB))}"
        case Apply(Op.MUL | Op.DIV as op, (left, right)):
            first = _operand_text(left, (*COMPARISONS, Op.ADD, Op.SUB))
            second = _operand_text(right, (*COMPARISONS, Op.ADD, Op.SUB, Op.MUL, Op.DIV))
            return f"{first} {op.value} {second}"
        case Apply(op, operands):
            return f"{op.value}({', '.join(function_text(operand) for operand in operands)})"
        case _:
            assert_never(body)


def _operand_text(operand: FunctionExpr, in_parentheses: tuple[Op, ...]) -> str:
    text = function_text(operand)
    return f"({text})" if isinstance(operand, Apply) and operand.op in in_parentheses else text


def _length_text(length: Expr) -> str:
    text = str(length)
    return text if re.fullmatch(r"\w+", text) else f"({text})"


def _values_text(parameter: Parameter) -> str:
    values = parameter.values
    steps = {b - a for a, b in pairwise(values)}
    if len(values) > 3 and len(steps) == 1 and (step := steps.pop()) > 0:
        return f"{values[0]}..{values[-1]}" + (f" step {step}" if step > 1 else "")
    return "{" + ", ".join(str(value) for value in values) + "}"


def _id_text(map_id: MapId) -> str:
    if isinstance(map_id, int) or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", map_id, re.ASCII):
        return str(map_id)
    return json.dumps(map_id)


def _node_lines(node: Node) -> Lines:
    """The lines of a node with their depths: one Python frame a level of nodes."""
    match node:
        case Ref(name):
            return [(0, name)]
        case Literal():
            return [(0, _constant_text(node))]
        case Fill(_, shape):
            lengths = ", ".join(str(length) for length in shape)
            return [(0, f"fill({_constant_text(node)}, {lengths})")]
        case Let(name, value, body):
            bound = _after(f"let {name} = ", _node_lines(value))
            depth, last = bound[-1]
            return [*bound[:-1], (depth, f"{last} in"), *_node_lines(body)]
        case Get(index, argument):
            inner = _node_lines(argument)
            if isinstance(argument, Let | Literal):
                inner = _wrapped("(", [inner])
            depth, last = inner[-1]
            return [*inner[:-1], (depth, f"{last}.{index}")]
        case _:
            head, arguments = _head(node)
            parts: list[Lines] = []
            for argument in arguments:
                parts.append(_node_lines(argument))
            return _wrapped(head, parts)


def _constant_text(node: Literal | Fill) -> str:
    """``1.5``, ``3:int`` or ``1.5:half``."""
    if node.dtype is Element.FLOAT32:
        return repr(float(node.value))
    whole = node.dtype.is_integer and float(node.value).is_integer()
    return f"{int(node.value) if whole else float(node.value)!r}:{node.dtype.text}"


def _head(
    node: Call | Map | Reduce | Zip | Split | Join | Slide | Pad | Transpose | Reorder | AsVector
    | AsScalar | To,
) -> tuple[str, tuple[Node, ...]]:  # fmt: skip
    """What stands before the first argument that is a node, and these arguments."""
    match node:
        case Call(function, arguments):
            return f"{function}(", arguments
        case Map(map_id, parameter, body, argument):
            return f"map#{_id_text(map_id)}({parameter} => ", (body, argument)
        case Reduce(accumulator, parameter, body, initial, argument, unroll, prefetch):
            option = "" if unroll == 0 else f"[unroll={unroll}]"
            option += "" if prefetch == 0 else f"[prefetch={prefetch}]"
            return f"reduce{option}(({accumulator}, {parameter}) => ", (body, initial, argument)
        case Zip(arguments):
            return "zip(", arguments
        case Split(size, argument):
            return f"split({size}, ", (argument,)
        case Join(argument):
            return "join(", (argument,)
        case Slide(size, step, argument, strict):
            return f"slide{'_strict' if strict else ''}({size}, {step}, ", (argument,)
        case Pad(left, right, value, argument):
            return f"pad({left}, {right}, {float(value)!r}, ", (argument,)
        case Transpose(argument):
            return "transpose(", (argument,)
        case Reorder(OrderKind.STRIDE, amount, argument):
            return f"reorder(stride({amount}), ", (argument,)
        case Reorder(OrderKind.REVERSE, amount, argument):
            # Reversing takes no amount; whatever is there must still be read back.
            return f"reorder(reverse{'' if amount == 1 else f'({amount})'}, ", (argument,)
        case AsVector(width, argument):
            return f"as_vector({width}, ", (argument,)
        case AsScalar(argument):
            return "as_scalar(", (argument,)
        case To(memory, argument, spread):
            option = f"[spread={spread}]" if spread else ""
            return f"to_{memory.value}{option}(", (argument,)
        case _:
            raise AssertionError(node)


def _after(head: str, lines: Lines) -> Lines:
    depth, first = lines[0]
    return [(depth, head + first), *lines[1:]]


def _indented(lines: Lines) -> Lines:
    return [(depth + 1, text) for depth, text in lines]


def _wrapped(head: str, parts: list[Lines]) -> Lines:
    """``head part, part)`` on one line if it fits, else each part on lines of its own."""
    if all(len(part) == 1 for part in parts):
        flat = f"{head}{', '.join(part[0][1] for part in parts)})"
        if len(flat) <= WIDTH:
            return [(0, flat)]
    lines: Lines = [(0, head.rstrip())]
    for position, part in enumerate(parts):
        *before, (depth, last) = _indented(part)
        lines += before
        lines.append((depth, f"{last}," if position + 1 < len(parts) else last))
    return [*lines, (0, ")")]
