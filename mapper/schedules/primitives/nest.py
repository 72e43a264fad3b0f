"""Nest: maps that stand one in the other made a perfect nest, which codes can fuse."""

from __future__ import annotations

from collections.abc import Sequence

from mapper.ast_model.nodes import Map, MapId, Program, Ref
from mapper.schedules.find import find_map
from mapper.schedules.nests import pair
from mapper.schedules.step import Step, refusal, step, tidy
from mapper.schedules.tree import is_view
from mapper.schedules.unique import Names

NAME = "nest"


def nest(program: Program, maps: Sequence[MapId]) -> Step:
    """Each map of the list directly in the one before, with nothing but the element handed on.

    Views that stood between go to the argument of the outermost and to the result. "Perfectly
    nested" is what "Mapping Parallelism in a Functional IR through Constraint Satisfaction"
    (CC'22), section 4.1, asks of maps that are fused.
    """
    return step(NAME, maps[0] if maps else "", program, nested(program, maps))


def nested(program: Program, maps: Sequence[MapId]) -> Program:
    """As :func:`nest`, tidy but not checked."""
    if len(maps) < 2:
        raise refusal(NAME, ", ".join(map(str, maps)), "not two or more maps")
    after = program
    # What a map hands on to the next may be handed on to more than that once the one around it is.
    for _ in maps:
        before, after = after, _pass(after, maps)
        if after is before:
            break
    return after


def _pass(program: Program, maps: Sequence[MapId]) -> Program:
    after = program
    for outer in reversed(maps[:-1]):
        found = find_map(NAME, after, outer)
        inside = found.node.body
        if (
            isinstance(inside, Map)
            and inside.argument == Ref(found.node.parameter)
            and not is_view(inside.body)
            and str(inside.id) in map(str, maps)
        ):
            continue
        names = Names(after)
        both = pair(names, found.node)
        if both is None:
            raise refusal(NAME, outer, "no map stands directly inside, with only layout between")
        if str(both.inner.id) not in map(str, maps):
            raise refusal(NAME, outer, "another map stands directly inside", str(both.inner.id))
        row = names.value("row")
        made = Map(outer, row, Map(both.inner.id, both.element, both.body, Ref(row)), both.array)
        after = tidy(found.site.replaced(both.placed(names, made)))
    return after
