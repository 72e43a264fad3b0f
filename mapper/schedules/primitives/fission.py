"""Fission: a map that computes something and then works on it, as two maps with a buffer between.

This also moves an epilogue: what a map does to the result of a reduce stands behind it then.
"""

from __future__ import annotations

from dataclasses import replace

from mapper.ast_model.builders import get
from mapper.ast_model.nodes import Layout, Let, Map, MapId, Node, Program, Reduce, Ref, To, Zip
from mapper.ast_model.types import Memory, TupleType, dimensions
from mapper.schedules.facts import type_of
from mapper.schedules.find import find_map
from mapper.schedules.primitives.split import check_ids
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.tree import (
    bound_types,
    free_names,
    is_view,
    looked_at,
    replaced,
    substituted,
    through_layout,
)
from mapper.schedules.unique import Names

NAME = "fission"


def fission(program: Program, map_id: MapId, memory: Memory = Memory.PRIVATE) -> Step:
    """``row`` as ``row``, which fills a buffer, and ``row_out``, which works on it.

    What is computed first is a staged value (``let t = to_private(…)``, which keeps its memory;
    the body may map over what the let gives) or the reduce whose result the body maps over (in
    ``memory``).
    """
    found = find_map(NAME, program, map_id)
    node, names = found.node, Names(program)
    if not is_view(node.argument):
        raise refusal(NAME, map_id, "the argument of the map is computed", "", "a view",
                      "stage it first")  # fmt: skip
    cut = _cut(names, node.body, memory)
    if cut is None:
        raise refusal(NAME, map_id, "the body computes nothing that it works on afterwards", "",
                      "a let of a staged value, or a map over the result of a reduce")  # fmt: skip
    name, made, rest = cut
    env = found.site.types()
    env |= bound_types(node, env, program)
    type_ = type_of(made, env, program)
    if isinstance(dimensions(type_)[1], TupleType):
        raise refusal(NAME, map_id, "tuples cannot be stored", str(type_), "scalars or vectors")
    spread = made.spread + 1 if made.spread else 0
    out = names.map_id(f"{map_id}_out")
    check_ids(NAME, map_id, out)
    buffer = names.value(name)
    x, z = node.parameter, names.value("z")
    filled = To(made.memory, Map(node.id, x, made.argument, node.argument), spread)
    if x in free_names(rest):
        # Of a tuple what is looked at is handed on, and nothing else.
        items = looked_at(rest, x)
        if items is not None and len(items) == 1:
            (item,) = items
            v = names.value("v")
            own: Node = Map(names.map_id(f"layout_{v}"), v, get(Ref(v), item), node.argument)
            rest = replaced(rest, get(Ref(x), item), get(Ref(z), 0))
        else:
            own = node.argument
            rest = substituted(rest, {x: get(Ref(z), 0)})
        both = Zip((own, Ref(buffer)))
        rest = substituted(rest, {name: get(Ref(z), 1)})
    else:
        both = Ref(buffer)
        rest = substituted(rest, {name: Ref(z)})
    after = found.site.replaced(Let(buffer, filled, Map(out, z, rest, both)))
    return step(NAME, map_id, program, after)


def _cut(names: Names, body: Node, memory: Memory) -> tuple[str, To, Node] | None:
    """The name of a value, what computes it, and the body that is left."""
    let = _first_let(body)
    if let is not None:
        value = _staged(let.value)
        return None if value is None else (let.name, value, _without(body, let, let.body))
    reduced = _epilogue_of(body)
    if reduced is None:
        return None
    name = names.value("total")
    rest = _without(body, reduced, Ref(name))
    return name, _staged(reduced) or To(memory, reduced), rest


def _first_let(body: Node) -> Let | None:
    """The let that the body is, or whose result the outermost maps go over."""
    while isinstance(body, Map | Layout):
        body = body.argument
    return body if isinstance(body, Let) else None


def _staged(value: Node) -> To | None:
    """A value with the memory that it is computed in; for a reduce that of its accumulator."""
    if isinstance(value, To):
        return value
    around, reduced = through_layout(value)
    if not isinstance(reduced, Reduce) or not isinstance(reduced.initial, To):
        return None
    start = reduced.initial
    return To(start.memory, around(replace(reduced, initial=start.argument)), start.spread)


def _epilogue_of(body: Node) -> Node | None:
    """The reduce whose result, perhaps in another layout, the outermost computing maps go over."""
    computing = False
    while isinstance(body, Map | Layout):
        computing |= isinstance(body, Map) and not is_view(body.body)
        body = body.argument
    return body if computing and isinstance(body, Reduce) else None


def _without(node: Node, part: Node, new: Node) -> Node:
    if node is part:
        return new
    assert isinstance(node, Map | Layout)
    return replace(node, argument=_without(node.argument, part, new))
