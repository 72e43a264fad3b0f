"""A second meaning of programs: one element at a time, in plain Python, with no batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, nan, sqrt
from typing import Any

import numpy as np

from mapper.ast_model.index_expr import Expr
from mapper.ast_model.nodes import (
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
    Node,
    Op,
    OrderKind,
    Pad,
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
from mapper.ast_model.types import VectorType, dimensions


@dataclass(frozen=True)
class Lanes:
    """A vector."""

    values: tuple[float, ...]


def slow_meaning(
    program: Program,
    values: Mapping[str, int],
    inputs: Mapping[str, Any],
    held: Callable[[float], float] = float,
) -> dict[str, np.ndarray]:
    """Every kernel's result. Arrays are lists, tuples are tuples, vectors are Lanes.

    ``held`` is a number as the program's elements hold it, which are all of one type.
    """
    numbers = {**dict(program.sizes), **values}
    env: dict[str, Any] = {}
    for input_ in program.inputs:
        lengths, element = dimensions(input_.type)
        is_vector = isinstance(element, VectorType)
        env[input_.name] = _from_numpy(inputs[input_.name], len(lengths), is_vector)
    results: dict[str, np.ndarray] = {}
    for kernel in program.kernels:
        env[kernel.name] = _value(kernel.body, env, program, numbers, held)
        results[kernel.name] = np.array(_to_lists(env[kernel.name]))
    return results


def _from_numpy(array: Any, axes: int, is_vector: bool) -> Any:
    if axes == 0:
        return Lanes(tuple(float(v) for v in array)) if is_vector else float(array)
    return [_from_numpy(item, axes - 1, is_vector) for item in array]


def _to_lists(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_lists(item) for item in value]
    return list(value.values) if isinstance(value, Lanes) else value


def _value(
    node: Node,
    env: dict[str, Any],
    program: Program,
    numbers: Mapping[str, int],
    held: Callable[[float], float],
) -> Any:
    def of(inner: Node, **more: Any) -> Any:
        return _value(inner, {**env, **more}, program, numbers, held)

    def number(expression: Expr) -> int:
        return expression.evaluate(numbers)

    match node:
        case Ref(name):
            return env[name]
        case Literal(value):
            return held(value)
        case Fill(value, shape):
            result: Any = held(value)
            for length in reversed(shape):
                result = [result] * number(length)
            return result
        case Call(name, arguments):
            function = program.function(name)
            assert function is not None
            given = [of(argument) for argument in arguments]
            bound = dict(zip(function.parameters, given, strict=True))
            return _apply(function.body, bound, held)
        case Map(_, parameter, body, argument):
            return [of(body, **{parameter: element}) for element in of(argument)]
        case Reduce(accumulator, parameter, body, initial, argument, _):
            total = of(initial)
            for element in of(argument):
                total = of(body, **{accumulator: total, parameter: element})
            return [total]
        case Zip(arguments):
            return list(zip(*(of(argument) for argument in arguments), strict=True))
        case Get(index, argument):
            return of(argument)[index]
        case Split(size, argument):
            source, chunk = of(argument), number(size)
            return [source[i : i + chunk] for i in range(0, len(source), chunk)]
        case Join(argument):
            return [element for row in of(argument) for element in row]
        case Slide(size, step, argument, _):
            source, window, stride = of(argument), number(size), number(step)
            count = (len(source) - window + stride) // stride
            return [source[i * stride : i * stride + window] for i in range(count)]
        case Pad(left, right, value, argument):
            source, before, border = of(argument), number(left), held(value)
            length = len(source) + before + number(right)
            return [
                source[i - before] if 0 <= i - before < len(source) else _like(source[0], border)
                for i in range(length)
            ]
        case Transpose(argument):
            return [list(column) for column in zip(*of(argument), strict=True)]
        case Reorder(OrderKind.STRIDE, amount, argument):
            source, stride = of(argument), number(amount)
            run = len(source) // stride
            return [source[i // run + stride * (i % run)] for i in range(len(source))]
        case Reorder(OrderKind.REVERSE, _, argument):
            return of(argument)[::-1]
        case AsVector(width, argument):
            source, lanes = of(argument), number(width)
            return [Lanes(tuple(source[i : i + lanes])) for i in range(0, len(source), lanes)]
        case AsScalar(argument):
            return [lane for vector in of(argument) for lane in vector.values]
        case To(_, argument):
            return of(argument)
        case Let(name, value, body):
            return of(body, **{name: of(value)})
        case _:
            raise AssertionError(node)


def _like(example: Any, value: float) -> Any:
    if isinstance(example, list):
        return [_like(item, value) for item in example]
    return Lanes((value,) * len(example.values)) if isinstance(example, Lanes) else value


def _apply(body: FunctionExpr, arguments: Mapping[str, Any], held: Callable[[float], float]) -> Any:
    if isinstance(body, str):
        return arguments[body]
    if not isinstance(body, Apply):
        return held(body)
    operands = [_apply(operand, arguments, held) for operand in body.operands]
    width = max((len(o.values) for o in operands if isinstance(o, Lanes)), default=None)
    count = 1 if width is None else width
    columns = [o.values if isinstance(o, Lanes) else (o,) * count for o in operands]
    lanes = [held(_scalar(body.op, row)) for row in zip(*columns, strict=True)]
    if body.op in (Op.DOT, Op.SUM):
        total = lanes[0]
        for lane in lanes[1:]:
            total = held(total + lane)
        return total
    return lanes[0] if width is None else Lanes(tuple(lanes))


def _scalar(op: Op, row: tuple[float, ...]) -> float:
    match op:
        case Op.ADD:
            return row[0] + row[1]
        case Op.SUB:
            return row[0] - row[1]
        case Op.MUL | Op.DOT:
            return row[0] * row[1]
        case Op.MAX:
            return max(row)
        case Op.MIN:
            return min(row)
        case Op.FMA:
            return row[0] * row[1] + row[2]
        case Op.SUM:
            return row[0]
        case Op.DIV:
            return row[0] / row[1]
        case Op.EXP:
            return exp(row[0])
        case Op.SQRT:
            return sqrt(row[0]) if row[0] >= 0 else nan
        case Op.ABS:
            return abs(row[0])
        case Op.LT:
            return row[0] < row[1]
        case Op.LE:
            return row[0] <= row[1]
        case Op.GT:
            return row[0] > row[1]
        case Op.GE:
            return row[0] >= row[1]
        case Op.EQ:
            return row[0] == row[1]
        case Op.NE:
            return row[0] != row[1]
        case Op.SELECT:
            return row[1] if row[0] else row[2]
        case Op.TO_FLOAT:
            return row[0]
        case Op.TO_HALF:
            return float(np.float16(row[0]))
        case _:
            raise AssertionError(op)  # programs of one element type convert nothing
