"""Two maps, one inside the other, as a perfect nest; accumulators that start from constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mapper.ast_model.builders import get
from mapper.ast_model.index_expr import Expr, ExprLike, as_expr
from mapper.ast_model.nodes import Call, Fill, Let, Literal, Map, Node, Ref, Transpose, Zip
from mapper.schedules.tree import (
    free_names,
    is_view,
    looked_at,
    replaced,
    substituted,
    through_layout,
)
from mapper.schedules.unique import Names


def layout_map(names: Names, function: Callable[[Ref], Node], argument: Node) -> Map:
    """A map that only changes the layout."""
    name = names.value("v")
    return Map(names.map_id(f"layout_{name}"), name, function(Ref(name)), argument)


def at_depth(names: Names, function: Callable[[Node], Node], argument: Node, depth: int) -> Node:
    """``function`` applied that many dimensions down."""
    if depth == 0:
        return function(argument)
    return layout_map(names, lambda v: at_depth(names, function, v, depth - 1), argument)


def repeated(names: Names, node: Node, length: ExprLike) -> Node:
    """[length] times the node, which is a view."""
    return layout_map(names, lambda _: node, Fill(0.0, (as_expr(length),)))


def zip_nd(names: Names, depth: int, arguments: tuple[Node, ...]) -> Node:
    """Arrays of ``depth`` equal leading dimensions as one array of tuples; one array as it is."""
    if len(arguments) == 1:
        return arguments[0]
    if depth == 1:
        return Zip(arguments)
    several = range(len(arguments))
    return layout_map(
        names,
        lambda t: zip_nd(names, depth - 1, tuple(get(t, k) for k in several)),
        Zip(arguments),
    )


def permuted(names: Names, node: Node, order: Sequence[int]) -> Node:
    """Dimension k of the result is dimension ``order[k]`` of the node."""
    current = list(range(len(order)))
    for target, wanted in enumerate(order):
        for position in range(current.index(wanted), target, -1):
            node = at_depth(names, Transpose, node, position - 1)
            current[position - 1 : position + 1] = current[position], current[position - 1]
    return node


@dataclass(frozen=True, slots=True)
class Pair:
    """``outer`` and ``inner``, a map in it with nothing but layout in between.

    ``array`` is [n][m] of what the inner body needs, ``body`` takes an element of it by the name
    ``element``; ``around`` puts back the layout changes between the two. ``computed`` is what the
    outer map goes over where that is no view, with a name for it.
    """

    outer: Map
    inner: Map
    array: Node
    element: str
    body: Node
    around: Callable[[Node], Node]
    plain: bool
    computed: tuple[str, Node] | None

    def placed(self, names: Names, rows: Node) -> Node:
        """The result of both maps, of ``rows``: the layout between them in each."""
        result = rows if self.plain else layout_map(names, self.around, rows)
        return result if self.computed is None else Let(*self.computed, result)


def pair(names: Names, outer: Map) -> Pair | None:
    """The map directly in ``outer``, with views between them moved to the argument of both.

    None if something else than layout stands between them, or the inner argument computes.
    """
    around, inner = through_layout(outer.body)
    if not isinstance(inner, Map) or is_view(inner.body) or not is_view(inner.argument):
        return None
    computed = None
    if not is_view(outer.argument):
        computed = (names.value("t"), outer.argument)
        outer = replace(outer, argument=Ref(computed[0]))
    # What stands around the inner map is a view of it, but may look at the outer element too.
    if outer.parameter in free_names(around(Ref("'inner"))):
        return None
    plain = through_layout(outer.body)[1] is outer.body
    x, own = outer.parameter, inner.argument
    if x not in free_names(inner.body):
        array = outer.argument if own == Ref(x) else layout_map(
            names, lambda v: substituted(own, {x: v}), outer.argument)  # fmt: skip
        return Pair(outer, inner, array, inner.parameter, inner.body, around, plain, computed)
    element = names.value("z")
    # Of a tuple what is looked at is handed on, and nothing else.
    items = looked_at(inner.body, x)
    wholes: list[Node] = [Ref(x)] if items is None else [get(Ref(x), k) for k in sorted(items)]

    def several(v: Ref) -> Node:
        own_here = substituted(own, {x: v})
        here = [substituted(whole, {x: v}) for whole in wholes]
        return Zip((*(layout_map(names, lambda _, n=n: n, own_here) for n in here), own_here))

    body = inner.body
    for position, whole in enumerate(wholes):
        body = replaced(body, whole, get(Ref(element), position))
    body = substituted(body, {inner.parameter: get(Ref(element), len(wholes))})
    array = layout_map(names, several, outer.argument)
    return Pair(outer, inner, array, element, body, around, plain, computed)


def constant_nest(node: Node) -> tuple[Literal, tuple[Map, ...], tuple[Expr, ...]] | None:
    """The constant, the maps and the lengths of ``map(… id …, fill(c, …))``, perfectly nested."""
    maps: list[Map] = []
    current = node
    while isinstance(current, Map):
        maps.append(current)
        current = current.body
    if not maps or not isinstance(current, Call) or current.function != "id":
        return None
    start = maps[0].argument
    if not isinstance(start, Fill) or len(start.shape) != len(maps):
        return None
    elements = [*(m.parameter for m in maps)]
    inner = [*(m.argument for m in maps[1:]), current.arguments[0]]
    if inner != [Ref(name) for name in elements]:
        return None
    return Literal(start.value, start.dtype), tuple(maps), start.shape


def constants(names: Names, ids: tuple[str, ...], one: Literal, shape: tuple[Expr, ...]) -> Node:
    """``map(… id …, fill(one, shape))``: an accumulator's start; a literal without dimensions."""
    if not shape:
        return one
    filled = Fill(one.value, shape, one.dtype)
    return mapped(names, ids, lambda x: Call("id", (x,)), filled)


def copied(names: Names, stem: str, array: Node, rank: int, ids: tuple[str, ...] = ()) -> Node:
    """A nest of maps that writes a view of this many dimensions: ``stem``, ``stem_1``, …, or
    with these ids."""
    ids = ids or (stem, *(names.map_id(f"{stem}_{k}") for k in range(1, rank)))
    return mapped(names, ids, lambda x: Call("id", (x,)), array)


def mapped(
    names: Names, ids: tuple[str, ...], function: Callable[[Ref], Node], array: Node
) -> Node:
    """Perfectly nested maps of these ids around ``function`` of an element."""
    parameters = [names.value("z") for _ in ids]
    body = function(Ref(parameters[-1]))
    for position in reversed(range(len(ids))):
        argument = Ref(parameters[position - 1]) if position else array
        body = Map(ids[position], parameters[position], body, argument)
    return body
