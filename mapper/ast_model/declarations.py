"""Checks of what a program declares: names, sizes, parameters, functions, inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from mapper.ast_model.bounds import (
    MAX_FUNCTION_DEPTH,
    MAX_TYPE_DEPTH,
    expression_is_too_large,
    function_depth,
    is_name,
)
from mapper.ast_model.index_expr import Expr
from mapper.ast_model.nodes import (
    COMPARISONS,
    CONVERSIONS,
    Apply,
    FunctionExpr,
    Op,
    Program,
    UserFunction,
)
from mapper.ast_model.types import ScalarType, VectorType, dimensions
from mapper.errors import Problem

OPERAND_COUNTS: dict[Op, int] = {
    Op.ADD: 2,
    Op.SUB: 2,
    Op.MUL: 2,
    Op.DIV: 2,
    Op.MAX: 2,
    Op.MIN: 2,
    Op.FMA: 3,
    Op.DOT: 2,
    Op.SUM: 1,
    Op.EXP: 1,
    Op.SQRT: 1,
    Op.ABS: 1,
    **dict.fromkeys(COMPARISONS, 2),
    Op.SELECT: 3,
    **dict.fromkeys(CONVERSIONS, 1),
}
_INT64 = 2**63 - 1
_NAME_RULE = "a letter or _, then letters, digits and _, at most 63; no word of the text form"


def declaration_problems(program: Program) -> Iterator[Problem]:
    """Everything wrong with a program outside its kernels' bodies."""
    yield from _name_problems(program)
    for name, value in program.sizes:
        if not 1 <= value <= _INT64:
            yield Problem(f"sizes/{name}", "a size is out of range", str(value), "1 to 2^63 - 1")
    for parameter in program.parameters:
        path = f"parameters/{parameter.name}"
        values = parameter.values
        if not values:
            yield Problem(path, "a parameter has no values", "none", "one or more")
        elif values[0] < 0 or values[-1] > _INT64:
            yield Problem(path, "a parameter's value is out of range",
                          f"{values[0]} to {values[-1]}", "0 to 2^63 - 1")  # fmt: skip
        if any(a >= b for a, b in pairwise(values)):
            yield Problem(
                path, "a parameter's values do not ascend", "", "each larger than the last"
            )
    for function in program.functions:
        yield from _function_problems(function)
    for input_ in program.inputs:
        path = f"inputs/{input_.name}/type"
        lengths, element = dimensions(input_.type)
        if len(lengths) > MAX_TYPE_DEPTH:
            yield Problem(path, "too many dimensions", str(len(lengths)), str(MAX_TYPE_DEPTH))
        elif not lengths or not isinstance(element, ScalarType | VectorType):
            yield Problem(path, "an input must be an array of scalars or vectors",
                          str(input_.type)[:200], "[float]n, [[half]m]n, [char<w>]n and so on",
                          "[float]1 for a scalar, an input for each part of a tuple")  # fmt: skip


def expression_problems(
    expression: Expr, known: frozenset[str], path: str, what: str
) -> Iterator[Problem]:
    """Unknown names, loop variables and undue size in an integer expression."""
    if expression.constant is not None:
        return
    if expression_is_too_large(expression):
        yield Problem(path, f"the expression of {what} is too large", "", "", "smaller expressions")
        return
    for symbol in sorted(expression.symbols(), key=lambda s: s.name):
        if symbol.extent is not None:
            yield Problem(path, f"a loop variable stands in {what}", symbol.name,
                          "sizes and tuning parameters")  # fmt: skip
        elif symbol.name not in known:
            yield Problem(path, f"unknown name in {what}", symbol.name,
                          _listing(known) or "none is declared")  # fmt: skip


def _listing(names: frozenset[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:20]) + (", …" if len(listed) > 20 else "")


def _name_problems(program: Program) -> Iterator[Problem]:
    """One name space for what a kernel can see; functions have their own."""
    declared = [
        *(("sizes", name) for name, _ in program.sizes),
        *(("parameters", parameter.name) for parameter in program.parameters),
        *(("inputs", input_.name) for input_ in program.inputs),
        *(("kernels", kernel.name) for kernel in program.kernels),
    ]
    taken: dict[str, str] = {}
    for group, name in declared:
        if not is_name(name):
            yield Problem(f"{group}/{name}", "not a usable name", repr(name)[:80], _NAME_RULE)
        if name in taken:
            yield Problem(f"{group}/{name}", "the name is taken", f"{name!r} in {taken[name]}",
                          "each name once")  # fmt: skip
        taken.setdefault(name, group)
    if not is_name(program.name):
        yield Problem("name", "not a usable name", repr(program.name)[:80], _NAME_RULE)
    if not program.kernels:
        yield Problem("kernels", "a program without kernels has no result", "none", "one or more")


def _function_problems(function: UserFunction) -> Iterator[Problem]:
    path = f"functions/{function.name}"
    for name in (function.name, *function.parameters):
        if not is_name(name):
            yield Problem(path, "not a usable name", repr(name)[:80], _NAME_RULE)
    if len(set(function.parameters)) != len(function.parameters) or not function.parameters:
        yield Problem(path, "parameters of a function must differ, and there must be one",
                      f"({', '.join(function.parameters)})")  # fmt: skip
    if function_depth(function.body) > MAX_FUNCTION_DEPTH:
        yield Problem(f"{path}/body", "operators are nested too deeply", "",
                      f"{MAX_FUNCTION_DEPTH} levels")  # fmt: skip
        return
    yield from _body_problems(function.body, function.parameters, f"{path}/body")


def _body_problems(body: FunctionExpr, parameters: tuple[str, ...], path: str) -> Iterator[Problem]:
    match body:
        case str():
            if body not in parameters:
                yield Problem(path, "unknown name in a function", body, ", ".join(parameters))
        case Apply(op, operands):
            if len(operands) != OPERAND_COUNTS[op]:
                yield Problem(path, f"wrong number of operands of {op.value}", str(len(operands)),
                              str(OPERAND_COUNTS[op]))  # fmt: skip
            for index, operand in enumerate(operands):
                yield from _body_problems(operand, parameters, f"{path}/operands/{index}")
        case float() | int():
            if not math.isfinite(body):
                yield Problem(path, "a constant must be finite", str(body))


def lane_reducing(function: UserFunction, vectors: tuple[bool, ...]) -> bool:
    """True if a call gives a scalar although an argument is a vector.

    ``vectors`` says for each parameter whether its argument is a vector. DOT and SUM give
    scalars; every other operator gives a vector if an operand is one.
    """
    kinds = dict(zip(function.parameters, vectors, strict=True))

    def is_vector(body: FunctionExpr) -> bool:
        match body:
            case str():
                return kinds[body]
            case float() | int():
                return False
            case Apply(Op.DOT | Op.SUM, _):
                return False
            case Apply(_, operands):
                return any(is_vector(operand) for operand in operands)

    return any(vectors) and not is_vector(function.body)
