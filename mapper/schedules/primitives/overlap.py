"""Overlap: a slide tiled, so that a loop's element is a dense tile with windows in it."""

from __future__ import annotations

from mapper.ast_model.nodes import MapId, Node, Program, Relation, Requirement
from mapper.schedules.affine import Margin, element, tiles, vector_demands
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
VECTORS = (1, 2, 4, 8, 16)


def overlap(program: Program, loop: MapId, base: str, use: int = 0) -> Step:
    """What this map or reduce reads of ``base`` in an iteration as one dense tile.

    Tiles overlap where windows do (the halo). Applies where every place is a sum of the loops'
    variables times constant steps forward, and a border is around the whole of ``base``. ``use``
    says in which of several places it is read, counted from 1.
    """
    return _tiled(NAME, program, loop, base, Margin(), use)


def widen(
    program: Program,
    loop: MapId,
    base: str,
    front: Size = 0,
    wide: Size = 0,
    vector: Size = 1,
) -> Step:
    """As :func:`overlap`, with ``front`` places before and ``wide`` behind those of a tile's rows.

    Rows can be copied in whole vectors then, or no two stand in one bank; the reader crops them.
    With ``vector`` tiles begin and end with whole vectors of so many places, the border is of
    whole vectors too, and one guard serves all lanes.
    """
    margin = Margin(as_size(front), as_size(wide), as_size(vector))
    if margin == Margin():
        raise refusal("widen", loop, "there is nothing to add", "0 and 0", "front, wide or vector")
    return _tiled("widen", program, loop, base, margin)


def _tiled(
    primitive: str, program: Program, loop: MapId, base: str, margin: Margin, use: int = 0
) -> Step:
    names = Names(program)
    found = carried(primitive, names, program, loop)
    place = one_part(primitive, found, loop, base, use)
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
    parameters = {
        p.name: p
        for p in (
            *parameters_for(program, margin.front, tuple(range(MAX_MARGIN))),
            *parameters_for(program, margin.wide, tuple(range(MAX_MARGIN))),
            # A border may be said by vectors.
            *parameters_for(program, margin.vector, VECTORS),
        )
    }
    demands = vector_demands(tiling, margin)
    requirements = [Requirement(margin.vector, Relation.DIVIDES, part) for part in demands]
    return step(primitive, loop, program, after, parameters.values(), requirements)
