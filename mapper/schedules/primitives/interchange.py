"""Interchange: two maps, one directly inside the other, change places; so do two reduces."""

from __future__ import annotations

from mapper.ast_model.nodes import Join, Map, MapId, Node, Program, Reduce, Ref, Transpose
from mapper.schedules.find import find_map, find_reduce
from mapper.schedules.folds import continued, fold_of
from mapper.schedules.nests import layout_map, pair
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.tree import is_view, substituted
from mapper.schedules.unique import Names

NAME = "interchange"


def interchange(program: Program, map_id: MapId) -> Step:
    """The map directly in this one comes outside of it; the result is transposed back.

    Between the two there may be changes of layout only, which do not look at the outer element.
    """
    return step(NAME, map_id, program, interchanged(program, map_id))


def interchanged(program: Program, map_id: MapId) -> Program:
    """As :func:`interchange`, neither tidy nor checked."""
    found = find_map(NAME, program, map_id)
    names = Names(program)
    both = pair(names, found.node)
    if both is None:
        raise refusal(NAME, map_id, "no map stands directly inside, with only layout between",
                      "", "two maps whose arguments are views",
                      "stage what is computed between them first")  # fmt: skip
    row = names.value("row")
    inside = Map(found.node.id, both.element, both.body, Ref(row))
    swapped: Node = Transpose(Map(both.inner.id, row, inside, Transpose(both.array)))
    return found.site.replaced(both.placed(names, swapped))


def interchange_reduces(program: Program, name: str) -> Step:
    """A reduce whose steps are reduces that go on with its accumulator, the other way round.

    The order of what is added up changes: for operators that are associative and commute only.
    """
    return step(NAME, name, program, reduces_interchanged(program, name))


def reduces_interchanged(program: Program, name: str) -> Program:
    """As :func:`interchange_reduces`, neither tidy nor checked."""
    found = find_reduce(NAME, program, name)
    outer = found.node
    inner = continued(outer)
    if inner is None:
        raise refusal(NAME, name, "its step is not a reduce that goes on with its accumulator",
                      "", "two reduces, such as split_reduce makes")  # fmt: skip
    if not is_view(outer.argument) or not is_view(inner.argument):
        raise refusal(NAME, name, "what is reduced is computed", "", "views", "stage it first")
    if fold_of(program, found) is None:
        raise refusal(NAME, name, "the operator is not known to be associative and to commute",
                      "", "a sum, product, maximum or minimum of the accumulator")  # fmt: skip
    rows = layout_map(
        Names(program),
        lambda v: substituted(inner.argument, {outer.parameter: v}),
        outer.argument,
    )
    # The names of the steps go with the loops.
    inside = Reduce(
        inner.accumulator,
        outer.parameter,
        substituted(inner.body, {inner.parameter: Ref(outer.parameter)}),
        Ref(outer.accumulator),
        Ref(inner.parameter),
        outer.unroll,
        outer.prefetch,
    )
    swapped = Reduce(
        outer.accumulator,
        inner.parameter,
        Join(inside),
        outer.initial,
        Transpose(rows),
        inner.unroll,
        inner.prefetch,
    )
    return found.site.replaced(swapped)
