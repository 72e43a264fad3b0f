"""Border: an array that is read with a border, written with it by a kernel that runs before."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from mapper.ast_model.index_expr import const
from mapper.ast_model.nodes import NO, Kernel, MapId, Pad, Program, Ref
from mapper.schedules.affine import Dimension, Margin, tiles, without_repeats
from mapper.schedules.nests import at_depth, copied
from mapper.schedules.primitives.pack import behind, read_before
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.unique import Names

NAME = "border"


def border(program: Program, loop: MapId, base: str, kernel: str, use: int = 0) -> Step:
    """A kernel ``kernel`` writes ``base`` with the border that the loop reads; the loop reads that.

    No step asks any more whether its place is inside. The whole array is written, in its own order;
    :func:`layout` changes that. Where the loop reads it in several places ``use`` says which,
    counted from 1. Applies where something is read in a border, and the array is an input or of an
    earlier kernel.
    """
    names = Names(program)
    found, place, tiling, source = read_before(NAME, names, program, loop, base, kernel, use)
    if tiling.is_within:
        raise refusal(NAME, loop, f"nothing is read in a border of {base}", "", "a padded view")
    whole: list[Dimension] = []
    for depth, d in enumerate(tiling.dimensions):
        if d.guarded:
            length = sum((t.reach for t in (*d.outer, *d.inner)), const(1))
            padded = partial(Pad, -d.start, length + d.start - d.length, tiling.otherwise)
            source = at_depth(names, padded, source, depth)
            d = replace(d, start=NO, length=length, guarded=False)
        whole.append(d)
    made = Kernel(kernel, copied(names, names.map_id(kernel), source, len(whole)))
    within = replace(tiling, dimensions=tuple(whole))
    cut = tiles(names, Ref(kernel), without_repeats(within), Margin())
    return step(NAME, loop, program, behind(names, found, place, made, cut, within))
