"""Constraints as vectorised functions: ``and``, ``or``, ``not``, ``in`` and chains of
comparisons become operations on whole arrays, as a user would write them for NumPy."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class _Vectorise(ast.NodeTransformer):
    """Rewrites truth values; arithmetic is the same for arrays."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        name = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
        return _reduced(name, [self.visit(value) for value in node.values])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return _call("logical_not", operand)
        return ast.UnaryOp(node.op, operand)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        return _call("where", self.visit(node.test), self.visit(node.body), self.visit(node.orelse))

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        operands = [node.left, *node.comparators]
        parts: list[ast.expr] = []
        for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
            first = self.visit(left)
            if isinstance(operator, ast.In | ast.NotIn) and isinstance(right, ast.Tuple | ast.List):
                equal: list[ast.expr] = [
                    ast.Compare(first, [ast.Eq()], [self.visit(item)]) for item in right.elts
                ]
                inside = _reduced("logical_or", equal)
                parts.append(
                    inside if isinstance(operator, ast.In) else _call("logical_not", inside)
                )
            else:
                parts.append(ast.Compare(first, [operator], [self.visit(right)]))
        return _reduced("logical_and", parts)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        arguments = [self.visit(argument) for argument in node.args]
        if name == "abs":
            return _call("abs", *arguments)
        return _reduced({"min": "minimum", "max": "maximum"}[name], arguments)


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _reduced(name: str, parts: Sequence[ast.expr]) -> ast.expr:
    joined = parts[0]
    for part in parts[1:]:
        joined = _call(name, joined, part)
    return joined


def array_function(text: str, names: Sequence[str]) -> Callable[..., Any]:
    """The expression as a function of arrays, one for each name."""
    body = _Vectorise().visit(ast.parse(text, mode="eval").body)
    arguments = ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])
    tree = ast.fix_missing_locations(ast.Expression(ast.Lambda(arguments, body)))
    known = ("abs", "logical_and", "logical_not", "logical_or", "maximum", "minimum", "where")
    scope: dict[str, Any] = {name: getattr(np, name) for name in known}
    return eval(
        compile(tree, "<constraint>", "eval"),
        {"__builtins__": {}, "true": True, "false": False, **scope},
    )
