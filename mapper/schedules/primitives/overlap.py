"""Overlap: a slide tiled, so that a loop's element is a dense tile with windows in it."""

from __future__ import annotations

from mapper.ast_model.nodes import MapId, Node, Program
from mapper.schedules.affine import Margin, element, tiles
from mapper.schedules.carried import (
    OldBody,
    base_node,
    carried,
    one_part,
    part_tiling,
    with_parts,
)
from mapper.schedules.sizes import Size, as_size, parameters_for
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.unique import Names

NAME = "overlap"
MAX_MARGIN = 32


def overlap(program: Program, loop: MapId, base: str) -> Step:
    """What this map or reduce reads of ``base`` in an iteration as one dense tile.

    Tiles overlap where windows do (the halo). Applies where every place is a sum of the loops'
    variables times constant steps forward, and a border is around the whole of ``base``.
    """
    return _tiled(NAME, program, loop, base, Margin())


def widen(program: Program, loop: MapId, base: str, front: Size = 0, wide: Size = 0) -> Step:
    """As :func:`overlap`, with ``front`` places before and ``wide`` behind those of a tile's rows.

    Rows are whole vectors then, or no two stand in one bank; the reader crops them.
    """
    before, behind = as_size(front), as_size(wide)
    if before == 0 and behind == 0:
        raise refusal("widen", loop, "there is nothing to add", "0 and 0", "front or wide")
    return _tiled("widen", program, loop, base, Margin(before, behind))


def _tiled(primitive: str, program: Program, loop: MapId, base: str, margin: Margin) -> Step:
    names = Names(program)
    found = carried(primitive, names, program, loop)
    place = one_part(primitive, found, loop, base)
    tiling = part_tiling(primitive, found, loop, place)
    source = base_node(names, found, place)
    if primitive == NAME and tiling.is_dense:
        raise refusal(primitive, loop, f"what is read of {base} is a dense tile already")
    arrays = [part.array for part in found.parts]
    arrays[place] = tiles(names, source, tiling, margin)

    def body(new: list[Node], old_body: OldBody) -> Node:
        new[place] = element(names, new[place], tiling, margin)
        return old_body(new)

    after = with_parts(names, found, arrays, body)
    parameters = [
        p
        for size in (margin.front, margin.wide)
        for p in parameters_for(program, size, tuple(range(MAX_MARGIN)))
    ]
    return step(primitive, loop, program, after, parameters)
