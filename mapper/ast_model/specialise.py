"""Replace sizes and tuning parameters of a program by values or expressions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache

from mapper.ast_model.index_expr import Expr, ExprLike
from mapper.ast_model.nodes import NODE_TYPES, Input, Kernel, Node, Program
from mapper.ast_model.types import ArrayType, ScalarType, TupleType, Type, VectorType


def substitute_type(type_: Type, values: Mapping[str, ExprLike]) -> Type:
    """The type with its lengths and widths substituted."""
    match type_:
        case ScalarType():
            return type_
        case VectorType():
            return replace(type_, width=type_.width.substitute(values))
        case TupleType():
            return TupleType(tuple(substitute_type(item, values) for item in type_.items))
        case ArrayType():
            return ArrayType(
                substitute_type(type_.element, values), type_.length.substitute(values)
            )


def substitute_node(node: Node, values: Mapping[str, ExprLike]) -> Node:
    """The node with every integer expression in it substituted."""
    before = [getattr(node, name) for name in _field_names(type(node))]
    after = [_substitute_field(value, values) for value in before]
    if all(new is old for new, old in zip(after, before, strict=True)):
        return node
    return type(node)(*after)  # pyright: ignore[reportArgumentType]


def _substitute_field(value: object, values: Mapping[str, ExprLike]) -> object:
    if isinstance(value, Expr):
        return value.substitute(values)
    if isinstance(value, NODE_TYPES):
        return substitute_node(value, values)
    if isinstance(value, tuple):
        items: tuple[object, ...] = value  # pyright: ignore[reportUnknownVariableType]
        changed = tuple(_substitute_field(item, values) for item in items)
        return changed if any(a is not b for a, b in zip(changed, items, strict=True)) else items
    return value


@cache
def _field_names(kind: type[Node]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def specialise(program: Program, values: Mapping[str, ExprLike]) -> Program:
    """The program with the named sizes and parameters replaced.

    Sizes and parameters that get a value are no longer listed; requirements are kept
    with the values put in.
    """
    return replace(
        program,
        sizes=tuple((name, size) for name, size in program.sizes if name not in values),
        parameters=tuple(p for p in program.parameters if not _is_decided(p.name, values)),
        requirements=tuple(
            replace(r, left=r.left.substitute(values), right=r.right.substitute(values))
            for r in program.requirements
        ),
        inputs=tuple(Input(i.name, substitute_type(i.type, values)) for i in program.inputs),
        kernels=tuple(Kernel(k.name, substitute_node(k.body, values)) for k in program.kernels),
    )


def _is_decided(name: str, values: Mapping[str, ExprLike]) -> bool:
    """True unless the parameter has no value, or stands for itself with more known of it."""
    value = values.get(name)
    return value is not None and not (isinstance(value, Expr) and name in value.names())


def size_values(program: Program) -> dict[str, int]:
    """The program's sizes as substitution values."""
    return dict(program.sizes)
