"""Flatten: two maps, or two reduces, one directly inside the other, as one over both lengths."""

from __future__ import annotations

from mapper.ast_model.nodes import Join, Map, MapId, Node, Program, Reduce, Ref, Split
from mapper.ast_model.types import ArrayType
from mapper.schedules.facts import type_of
from mapper.schedules.find import find_map, find_reduce
from mapper.schedules.folds import continued
from mapper.schedules.nests import layout_map, pair
from mapper.schedules.primitives.split import check_ids
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.tree import bound_types, is_view, substituted
from mapper.schedules.unique import Names

NAME = "flatten"


def flatten(program: Program, map_id: MapId) -> Step:
    """``row`` around ``column`` as ``row_column``; the result is split again.

    Between the two there may be changes of layout only, which do not look at the outer element.
    """
    found = find_map(NAME, program, map_id)
    names = Names(program)
    both = pair(names, found.node)
    if both is None:
        raise refusal(NAME, map_id, "no map stands directly inside, with only layout between",
                      "", "two maps whose arguments are views",
                      "stage what is computed between them first")  # fmt: skip
    types = found.site.types()
    types |= bound_types(found.node, types, program)
    inner = type_of(both.inner.argument, types, program)
    assert isinstance(inner, ArrayType)
    joined = names.map_id(f"{map_id}_{both.inner.id}")
    check_ids(NAME, map_id, joined)
    result: Node = Split(inner.length, Map(joined, both.element, both.body, Join(both.array)))
    after = found.site.replaced(both.placed(names, result))
    return step(NAME, map_id, program, after)


def flatten_reduces(program: Program, name: str) -> Step:
    """A reduce whose steps are reduces that go on with its accumulator, as one, named as it is.

    The order of the steps stays, so any operator will do.
    """
    found = find_reduce(NAME, program, name)
    outer = found.node
    inner = continued(outer)
    if inner is None:
        raise refusal(NAME, name, "its step is not a reduce that goes on with its accumulator",
                      "", "two reduces, such as split_reduce makes")  # fmt: skip
    if not is_view(outer.argument) or not is_view(inner.argument):
        raise refusal(NAME, name, "what is reduced is computed", "", "views", "stage it first")
    rows = layout_map(
        Names(program),
        lambda v: substituted(inner.argument, {outer.parameter: v}),
        outer.argument,
    )
    values: dict[str, Node] = {
        inner.accumulator: Ref(outer.accumulator),
        inner.parameter: Ref(outer.parameter),
    }
    joined = Reduce(
        outer.accumulator,
        outer.parameter,
        substituted(inner.body, values),
        outer.initial,
        Join(rows),
        inner.unroll,
        outer.prefetch,
    )
    return step(NAME, name, program, found.site.replaced(joined))
