"""Views written shorter: what rewrites leave behind is taken out again.

Every rule keeps the meaning and asks nothing of sizes. Names must be unique in the program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mapper.ast_model.nodes import (
    Fill,
    Get,
    Join,
    Layout,
    Let,
    Map,
    Node,
    Pad,
    Reduce,
    Ref,
    Split,
    Transpose,
    Zip,
)
from mapper.schedules.facts import simple_nodes
from mapper.schedules.tree import is_view, nodes_of, rebuilt, substituted, through_layout, uses


def simplified(node: Node) -> Node:
    """The node with no two layout changes that undo each other, inner ones first."""
    return _simplified(node, simple_nodes())


def _simplified(node: Node, simple: dict[int, Node]) -> Node:
    if id(node) in simple:
        return node
    node = rebuilt(node, lambda child: _simplified(child, simple))
    while (shorter := _shorter(node)) is not None:
        node = rebuilt(shorter, lambda child: _simplified(child, simple))
    simple[id(node)] = node
    return node


def _shorter(node: Node) -> Node | None:
    if not isinstance(node, Map | Let | Get | Layout):
        return None
    match node:
        case Transpose(Transpose(argument)) | Join(Split(_, argument)):
            return argument
        case Join(Pad(left, right, _, Map(_, parameter, body, Fill(_, shape)))) if (
            left == 0 and shape == (1 - right,) and is_view(body) and not uses(body, parameter)
        ):
            # The first of what is repeated.
            return body
        case Map(_, parameter, Ref(name), argument) if name == parameter:
            return argument
        case Map(_, parameter, Join(Ref(name)), Transpose(Reduce() as reduced)) if (
            name == parameter
        ):
            # A reduce has one result: [[T]m]1 by way of [[T]1]m.
            return Join(reduced)
        case Map(_, parameter, body, Zip(arguments)) if (
            is_view(body) and (one := _only_component(body, parameter)) is not None
        ):
            return replace(node, body=_without_get(body, parameter), argument=arguments[one])
        case Map(_, parameter, body, Map(_, inner, made, argument)) if (
            is_view(body) and is_view(made) and uses(body, parameter) == 1
        ):
            joined = substituted(body, {parameter: made})
            return Map(node.id, inner, joined, argument)
        case Map(_, parameter, body, Join(Map() as rows)) if is_view(rows) and _picks(
            body, parameter
        ):
            # Of joined tuples one component: the tuples are in the rows.
            assert isinstance(node, Map)
            return Join(replace(rows, body=replace(node, argument=rows.body)))
        case Join(Map(_, parameter, Map(_, inner, body, argument) as line) as rows) if (
            is_view(body) and not uses(body, inner) and not uses(body, parameter)
        ):
            # The same for all, in rows or not.
            return replace(line, argument=Join(replace(rows, body=argument)))
        case Get(index, Let(name, value, body)):
            return Let(name, value, Get(index, body))
        case Let(name, Let(inner, value, between), body):
            return Let(inner, value, Let(name, between, body))
        case Let(name, value, body) if is_view(value) and (
            uses(body, name) <= 1 or isinstance(value, Ref)
        ):
            return substituted(body, {name: value})
        case Map(map_id, parameter, body, argument) if not is_view(body) and (
            (floated := _floated(body, parameter)) is not None
        ):
            # What is done to each result alone is done to all of them.
            around, inner = floated
            name = f"{parameter[:50]}_all"
            while uses(around(Ref("'inner")), name):
                name += "_"
            made = Map(map_id, parameter, inner, argument)
            return Map(f"layout_{parameter}", name, around(Ref(name)), made)
        case _ if isinstance(node, Layout) and isinstance(node.argument, Let):
            let = node.argument
            return replace(let, body=replace(node, argument=let.body))
        case Map(_, _, body, Let(name, value, inner)) if is_view(body):
            return Let(name, value, replace(node, argument=inner))
        case _:
            return None


def _floated(body: Node, parameter: str) -> tuple[Callable[[Node], Node], Node] | None:
    """The layout around a computing map in a body, if it does not look at the element."""
    around, inner = through_layout(body)
    if inner is body or not isinstance(inner, Map) or is_view(inner.body):
        return None
    return None if uses(around(Ref("'inner")), parameter) else (around, inner)


def _only_component(body: Node, parameter: str) -> int | None:
    """The component of a tuple that a body looks at, if it looks at one only."""
    found = {n.index for n in nodes_of(body) if isinstance(n, Get) and n.argument == Ref(parameter)}
    gets = sum(isinstance(n, Get) and n.argument == Ref(parameter) for n in nodes_of(body))
    return found.pop() if len(found) == 1 and gets == uses(body, parameter) else None


def _picks(body: Node, parameter: str) -> bool:
    """Whether a body is one component of the name's value, or of all elements in it."""
    match body:
        case Get(_, Ref(name)):
            return name == parameter
        case Map(_, inner, picked, Ref(name)):
            return name == parameter and _picks(picked, inner)
        case _:
            return False


def _without_get(body: Node, parameter: str) -> Node:
    if isinstance(body, Get) and body.argument == Ref(parameter):
        return Ref(parameter)
    return rebuilt(body, lambda child: _without_get(child, parameter))
