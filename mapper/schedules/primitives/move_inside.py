"""Move a map inside a reduce: an accumulator for each iteration, a register tile for example."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mapper.ast_model.builders import get
from mapper.ast_model.nodes import (
    Fill,
    Literal,
    Map,
    MapId,
    Node,
    Program,
    Reduce,
    Ref,
    To,
    Transpose,
    Zip,
)
from mapper.ast_model.types import dimensions
from mapper.schedules.facts import type_of
from mapper.schedules.find import MapSite, find_map
from mapper.schedules.folds import accumulators_at, component_mark
from mapper.schedules.nests import constant_nest, constants, copied, layout_map
from mapper.schedules.primitives.split import check_ids
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.tree import (
    Site,
    bound_types,
    free_names,
    is_view,
    substituted,
    through_layout,
)
from mapper.schedules.unique import Names

NAME = "move_inside"


def move_inside(program: Program, map_id: MapId) -> Step:
    """``map(x => reduce(step, start, v))`` as a reduce whose steps map over all the x.

    Between the map and the reduce there may be changes of layout only. The accumulators start in
    a map ``<id>_zero``, unless the reduce goes on with an accumulator from outside.
    """
    found = find_map(NAME, program, map_id)
    names, node = Names(program), found.node
    around, inner = through_layout(node.body)
    if not isinstance(inner, Reduce):
        raise refusal(NAME, map_id, "no reduce stands directly inside, with only layout between",
                      type(inner).__name__.lower(), "a reduce",
                      "fission of what is done to its result")  # fmt: skip
    if not is_view(node.argument) or not is_view(inner.argument):
        raise refusal(NAME, map_id, "the argument of the map or of the reduce is computed", "",
                      "views", "stage it first")  # fmt: skip
    x = node.parameter
    if x in free_names(around(Ref("'inner"))):
        raise refusal(NAME, map_id, "the layout of the result depends on the map's element", x)
    if isinstance(inner.initial, To) and inner.initial.spread:
        raise refusal(NAME, map_id, "the accumulator is spread already", "",
                      "maps inside before spread")  # fmt: skip
    zero = names.map_id(f"{map_id}_zero")
    check_ids(NAME, map_id, zero)
    start = _started(names, zero, found, inner)
    reduced = Reduce(
        inner.accumulator,
        inner.parameter,
        _step(names, node, inner),
        start,
        _argument(names, node, inner),
        inner.unroll,
        inner.prefetch,
    )
    site, reduced = _own_memory(found.site, reduced)
    return step(NAME, map_id, program, site.replaced(_placed(names, node, around, reduced)))


def _own_memory(site: Site, reduced: Reduce) -> tuple[Site, Reduce]:
    """A reduce whose result is written to a memory accumulates there."""
    if not site.path or isinstance(reduced.initial, To) or is_view(reduced.initial):
        return site, reduced
    parent = site.path[-1][0]
    if not isinstance(parent, To) or parent.spread:
        return site, reduced
    return site.up(), replace(reduced, initial=To(parent.memory, reduced.initial))


def _argument(names: Names, node: Map, inner: Reduce) -> Node:
    if node.parameter not in free_names(inner.argument):
        return inner.argument
    rows = layout_map(
        names, lambda v: substituted(inner.argument, {node.parameter: v}), node.argument
    )
    return Transpose(rows)


def _step(names: Names, node: Map, inner: Reduce) -> Node:
    """One step for all iterations of the map."""
    x, y, accumulator = node.parameter, inner.parameter, inner.accumulator
    used = free_names(inner.body)
    arrays: list[tuple[str, Node]] = [(accumulator, Ref(accumulator))]
    if x in free_names(inner.argument) and y in used:
        arrays.append((y, Ref(y)))
    if x in used:
        arrays.append((x, node.argument))
    element = names.value("z")
    if len(arrays) == 1:
        values: dict[str, Node] = {accumulator: Ref(element)}
        return Map(node.id, element, substituted(inner.body, values), Ref(accumulator))
    values = {name: get(Ref(element), k) for k, (name, _) in enumerate(arrays)}
    body = substituted(inner.body, values)
    return Map(node.id, element, body, Zip(tuple(array for _, array in arrays)))


def _started(names: Names, zero: str, found: MapSite, inner: Reduce) -> Node:
    """The accumulators' start: what the one accumulator started from, for each iteration."""
    node, initial = found.node, inner.initial
    if isinstance(initial, To):
        return replace(initial, argument=_computed(names, zero, initial.argument, found))
    if not is_view(initial) or isinstance(initial, Literal):
        return _computed(names, zero, initial, found)
    if isinstance(initial, Fill):
        return replace(initial, shape=(found.length, *initial.shape))
    started = layout_map(names, lambda v: substituted(initial, {node.parameter: v}), node.argument)
    marks = accumulators_at(found.site)
    marks[node.parameter] = component_mark(node.argument, marks) is True
    if component_mark(started, marks) is True:
        return started
    env = found.site.types()
    type_ = type_of(initial, env | bound_types(node, env, found.site.program), found.site.program)
    return copied(names, zero, started, 1 + len(dimensions(type_)[0]))


def _computed(names: Names, zero: str, initial: Node, found: MapSite) -> Node:
    if isinstance(initial, Literal):
        return constants(names, (zero,), initial, (found.length,))
    nest = constant_nest(initial)
    if nest is not None:
        value, maps, shape = nest
        return constants(names, (zero, *(str(m.id) for m in maps)), value, (found.length, *shape))
    return Map(zero, found.node.parameter, initial, found.node.argument)


def _placed(names: Names, node: Map, around: Callable[[Node], Node], reduced: Reduce) -> Node:
    """[[T]n]1 as the result of the map: the layout around the reduce in each of n rows."""
    name = names.value("v")
    rest = around(Ref(name))
    return Map(names.map_id(f"layout_{name}"), name, rest, Transpose(reduced))
