"""Arrays of tuples taken apart into arrays, and put together again; all are views."""

from __future__ import annotations

from collections.abc import Iterator

from mapper.ast_model.nodes import Get, Node, Zip
from mapper.ast_model.types import ArrayType, TupleType, Type
from mapper.schedules.nests import at_depth, layout_map
from mapper.schedules.unique import Names


def leaves(names: Names, node: Node, type_: Type) -> list[Node]:
    """The arrays of scalars in an array of tuples, in order, each with all its dimensions."""
    return [_at(names, node, path) for path in _paths(type_)]


def leaf_types(type_: Type) -> list[Type]:
    """Their types."""
    found: list[Type] = []
    for path in _paths(type_):
        found.append(_type_at(type_, path))
    return found


def leaf_paths(type_: Type, name: str) -> list[str]:
    """Their names: ``name``, with the components of tuples behind it (``name/1/0``)."""
    return ["/".join((name, *(str(k) for k in path if k is not None))) for path in _paths(type_)]


def assembled(names: Names, type_: Type, parts: list[Node]) -> Node:
    """The array (or tuple of arrays) of this type that such arrays make up."""
    node, rest = _assembled(names, type_, parts)
    assert not rest
    return node


def _paths(type_: Type) -> Iterator[tuple[int | None, ...]]:
    """Ways to the scalars: a component, or None for every element of an array."""
    match type_:
        case TupleType(items):
            for index, item in enumerate(items):
                for rest in _paths(item):
                    yield (index, *rest)
        case ArrayType(element):
            for rest in _paths(element):
                yield (None, *rest)
        case _:
            yield ()


def _at(names: Names, node: Node, path: tuple[int | None, ...]) -> Node:
    depth = 0
    for part in path:
        if part is None:
            depth += 1
        else:
            node = at_depth(names, lambda v, part=part: Get(part, v), node, depth)
    return node


def _type_at(type_: Type, path: tuple[int | None, ...]) -> Type:
    match type_:
        case ArrayType(element, length):
            return ArrayType(_type_at(element, path[1:]), length)
        case TupleType(items):
            index = path[0]
            assert index is not None
            return _type_at(items[index], path[1:])
        case _:
            return type_


def _assembled(names: Names, type_: Type, parts: list[Node]) -> tuple[Node, list[Node]]:
    match type_:
        case ArrayType(TupleType(items), length):
            # [(A, B)]n as [A]n and [B]n.
            arrays: list[Node] = []
            for item in items:
                array, parts = _assembled(names, ArrayType(item, length), parts)
                arrays.append(array)
            return Zip(tuple(arrays)), parts
        case ArrayType(element):
            count = len(list(_paths(element)))
            mine, rest = parts[:count], parts[count:]
            if count == 1:
                return mine[0], rest
            made = layout_map(
                names,
                lambda v: assembled(names, element, [Get(k, v) for k in range(count)]),
                Zip(tuple(mine)),
            )
            return made, rest
        case TupleType():
            raise AssertionError("a tuple outside of an array cannot be made")
        case _:
            return parts[0], parts[1:]
