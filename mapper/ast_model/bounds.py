"""Bounds on programs, and the words that a name may not be.

Programs come from strangers too. Everything that walks a program after
:func:`check_node_bounds` may recurse over its nodes with one frame a level, and everything
that handles a length may recurse over its atoms. Programs of the papers nest about 60 deep.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields

from mapper.ast_model.index_expr import Expr, Symbol
from mapper.ast_model.nodes import Apply, Call, FunctionExpr, Node, Reduce, children
from mapper.ast_model.types import ArrayType, ScalarType, TupleType, Type, VectorType
from mapper.errors import LimitError, Problem

MAX_NODE_DEPTH = 200
MAX_NODES = 10_000
MAX_FUNCTION_DEPTH = 64
MAX_EXPRESSION_ATOMS = 512
MAX_EXPRESSION_DEPTH = 32
MAX_TYPE_DEPTH = 32
MAX_TUPLE_LEAVES = 64

RESERVED_WORDS = frozenset(
    (
        *("map", "reduce", "zip", "split", "join", "slide", "slide_strict", "pad", "transpose"),
        *("reorder", "as_vector", "as_scalar", "to_global", "to_local", "to_private"),
        *("let", "in", "fill"),
    )
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)


def is_name(text: str) -> bool:
    """True if this can name a size, parameter, function, input, kernel or value."""
    return _NAME.fullmatch(text) is not None and text not in RESERVED_WORDS


def expression_is_too_large(expression: Expr) -> bool:
    """True if an expression has too many atoms, or quotients nested too deeply."""
    atoms = 0
    stack = [(expression, 0)]
    while stack:
        current, depth = stack.pop()
        if depth > MAX_EXPRESSION_DEPTH or len(current.terms) > MAX_EXPRESSION_ATOMS:
            return True
        for monomial, _ in current.terms:
            atoms += len(monomial)
            if atoms > MAX_EXPRESSION_ATOMS:
                return True
            for atom in monomial:
                if not isinstance(atom, Symbol):
                    stack += [(atom.numerator, depth + 1), (atom.denominator, depth + 1)]
    return False


def check_node_bounds(roots: Iterable[tuple[str, Node]]) -> None:
    """LimitError if the trees of nodes together are too many, too deep or too wordy.

    ``roots`` come with their paths. A node object that stands in two places counts twice,
    as it would be worked on twice.
    """
    count = 0
    stack = [(path, root, 1) for path, root in roots]
    while stack:
        path, node, depth = stack.pop()
        count += 1
        if count > MAX_NODES:
            raise LimitError(
                Problem("", "the program is too large", f"more than {MAX_NODES} nodes",
                        f"at most {MAX_NODES} nodes")
            )  # fmt: skip
        if depth > MAX_NODE_DEPTH:
            # The path itself would be thousands of fields long.
            raise LimitError(
                Problem("/".join(path.split("/")[:2]), "nodes are nested too deeply",
                        f"more than {MAX_NODE_DEPTH} levels", f"at most {MAX_NODE_DEPTH} levels")
            )  # fmt: skip
        for field in fields(node):
            value = getattr(node, field.name)
            if isinstance(value, Expr) and expression_is_too_large(value):
                raise LimitError(
                    Problem(f"{path}/{field.name}", "the integer expression is too large", "",
                            f"{MAX_EXPRESSION_ATOMS} atoms, {MAX_EXPRESSION_DEPTH} divisions deep")
                )  # fmt: skip
        stack += [(f"{path}/{name}", child, depth + 1) for name, child in children(node)]


def function_depth(body: FunctionExpr) -> int:
    """Levels of operators in a user function's body; stops counting beyond the bound."""
    deepest = 0
    stack = [(body, 0)]
    while stack and deepest <= MAX_FUNCTION_DEPTH:
        expression, depth = stack.pop()
        deepest = max(deepest, depth)
        if isinstance(expression, Apply):
            stack += [(operand, depth + 1) for operand in expression.operands]
    return deepest


def type_is_too_large(type_: Type) -> bool:
    """True if a type has too many levels, or its tuples too many components in all."""
    leaves = 0
    stack = [(type_, 0)]
    while stack:
        part, level = stack.pop()
        if level > MAX_TYPE_DEPTH or leaves > MAX_TUPLE_LEAVES:
            return True
        match part:
            case ArrayType():
                stack.append((part.element, level + 1))
            case TupleType():
                stack += [(item, level + 1) for item in part.items]
            case ScalarType() | VectorType():
                leaves += 1
    return leaves > MAX_TUPLE_LEAVES


def writes(node: Node) -> bool:
    """True if a user function or a reduction stands in it."""
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, Call | Reduce):
            return True
        stack += [child for _, child in children(current)]
    return False
