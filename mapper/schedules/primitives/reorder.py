"""Reorder: a perfect nest of maps in another order, by interchanges of neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from mapper.ast_model.nodes import Map, MapId, Program, Reduce
from mapper.schedules.find import find_map, find_reduce
from mapper.schedules.folds import continued
from mapper.schedules.primitives.interchange import interchanged, reduces_interchanged
from mapper.schedules.primitives.nest import nested
from mapper.schedules.step import Step, refusal, step, tidy
from mapper.schedules.tree import is_view, through_layout

NAME = "reorder"
MAX_MAPS = 32


def reorder(program: Program, maps: Sequence[MapId]) -> Step:
    """These maps, which stand one directly in the other, in this order from outside inwards.

    Between them there may be changes of layout only, and no other map. As TVM's ``reorder``.
    """
    wanted = [str(m) for m in maps]
    if len(set(wanted)) != len(wanted) or not 2 <= len(wanted) <= MAX_MAPS:
        raise refusal(NAME, ", ".join(wanted), "not two or more different maps")
    found = _nest(program, wanted)
    if sorted(found) != sorted(wanted):
        raise refusal(NAME, wanted[0], "the maps do not stand one directly in the other",
                      ", ".join(found), ", ".join(wanted))  # fmt: skip
    after = program
    for target, name in enumerate(wanted):
        for position in range(found.index(name), target, -1):
            after = interchanged(after, found[position - 1])
            found[position - 1 : position + 1] = found[position], found[position - 1]
        after = tidy(after)
    after = nested(after, wanted)
    return step(NAME, wanted[0], program, after)


def reorder_reduces(program: Program, reduces: Sequence[str]) -> Step:
    """These reduces, each the step of the one before, in this order from outside inwards.

    As :func:`mapper.schedules.primitives.interchange.interchange_reduces`, which it repeats.
    """
    wanted = list(reduces)
    if len(set(wanted)) != len(wanted) or not 2 <= len(wanted) <= MAX_MAPS:
        raise refusal(NAME, ", ".join(wanted), "not two or more different reduces")
    found = _fold(program, wanted)
    if sorted(found) != sorted(wanted):
        raise refusal(NAME, wanted[0], "the reduces are not each the step of the one before",
                      ", ".join(found), ", ".join(wanted))  # fmt: skip
    after = program
    for target, name in enumerate(wanted):
        for position in range(found.index(name), target, -1):
            after = tidy(reduces_interchanged(after, found[position - 1]))
            found[position - 1 : position + 1] = found[position], found[position - 1]
    return step(NAME, wanted[0], program, after)


def _fold(program: Program, wanted: list[str]) -> list[str]:
    """The outermost of these reduces, and those that go on with its accumulator."""
    found: list[str] = []
    for name in wanted:
        node: Reduce | None = find_reduce(NAME, program, name).node
        run: list[str] = []
        while node is not None and node.parameter in wanted:
            run.append(node.parameter)
            node = continued(node)
        if len(run) > len(found):
            found = run
    return found


def _nest(program: Program, wanted: list[str]) -> list[str]:
    """The outermost of these maps, and those directly in it."""
    found: list[str] = []
    for name in wanted:
        node = find_map(NAME, program, name).node
        nest: list[str] = []
        while isinstance(node, Map) and str(node.id) in wanted and not is_view(node.body):
            nest.append(str(node.id))
            node = through_layout(node.body)[1]
        if len(nest) > len(found):
            found = nest
    return found
