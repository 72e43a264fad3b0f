"""Re-share: a nest of copies shared out anew among another number of iterations."""

from __future__ import annotations

from mapper.ast_model.nodes import MapId, Program
from mapper.schedules.primitives.flatten import flatten
from mapper.schedules.primitives.split import Overhang, split
from mapper.schedules.sizes import Size
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.tree import concrete_maps

NAME = "reshare"
MAX_LEVELS = 16


def reshare(
    program: Program,
    map_id: MapId,
    levels: int,
    share: Size,
    overhang: Overhang = Overhang.DIVISIBLE,
) -> Step:
    """``levels`` maps from this one inwards as one, cut into shares of ``share`` iterations.

    Flatten and split: work-items that copied a row each can copy an equal part of a tile each.
    The outer map, ``…_tile``, goes over the shares.
    """
    if not 1 <= levels <= MAX_LEVELS:
        raise refusal(NAME, map_id, "no number of maps", str(levels), f"1 to {MAX_LEVELS}")
    after, name = program, map_id
    for _ in range(levels - 1):
        before = {str(m.id) for m in concrete_maps(after)}
        after = flatten(after, name).program
        (name,) = (m.id for m in concrete_maps(after) if str(m.id) not in before)
    made = split(after, name, share, overhang)
    return step(NAME, map_id, program, made.program)
