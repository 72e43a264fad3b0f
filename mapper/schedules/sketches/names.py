"""How primitives will name and lay out what they make."""

from __future__ import annotations

from mapper.ast_model.nodes import Program
from mapper.schedules.affine import without_repeats
from mapper.schedules.carried import carried, one_part, part_tiling
from mapper.schedules.sketches.analysis import Nest
from mapper.schedules.sketches.draft import Draft
from mapper.schedules.unique import Names

EVEN = 16
"""Lengths that this does not divide get padding: no tile of a good size may divide them."""


def split_in_two(draft: Draft, loop: str, size: str, trip: int) -> tuple[Draft, str, str]:
    """A map split, padded if good sizes may not divide its trip; the outer and the inner name."""
    around = Names(draft.program).map_id(f"{loop}_tile")
    inside = Names(draft.program).map_id(f"{loop}_in_tile")
    if trip % EVEN:
        longer = draft.maybe("split", loop, size, overhang="padded", coarse=True)
        if longer is not draft:
            return longer, around, inside
    return draft.then("split", loop, size), around, inside


def split_by_dimensions(draft: Draft, nest: Nest) -> tuple[Draft, list[str]]:
    """The nest's reduce as one for each dimension that it goes over; their names, in order."""
    reduces = [nest.reduce]
    for length, _ in reversed(nest.factors[1:]):
        draft = draft.then("split_reduce", reduces[0], length)
        reduces[:1] = chained(reduces[0])
    return draft, reduces


def chained(name: str) -> tuple[str, str]:
    """The names of a split reduce: of the chunks, and of the steps in one."""
    return f"{name}_tile", f"{name}_in_tile"


def lanes_of(
    program: Program, loop: str, base: str, place: int, use: int = 0
) -> tuple[int, int | None]:
    """Of tiles of ``base`` that a loop reads: their rank, and the dimension that a map inside of it
    goes along, the ``place``-th of those directly in it."""
    found = carried("sketch", Names(program), program, loop, every=True)
    tiling = part_tiling("sketch", found, loop, one_part("sketch", found, loop, base, use))
    core = without_repeats(tiling)
    variable = tiling.own[place][0]
    mine = [any(t.variable == variable for t in core.dimensions[d].inner) for d in core.kept]
    rank = len(core.outer) + len(core.kept)
    return rank, len(core.outer) + mine.index(True) if any(mine) else None


def start_of(program: Program, loop: str, base: str) -> int | None:
    """Where the first tile of ``base`` that a loop reads begins along its rows: before them, where
    it has a border (negative). None where that is no number."""
    found = carried("sketch", Names(program), program, loop, every=True)
    tiling = part_tiling("sketch", found, loop, one_part("sketch", found, loop, base))
    return tiling.dimensions[tiling.kept[-1]].start.constant if tiling.kept else None
