"""Maps without a reduce, and reduces of one array: bandwidth is all that they need.

Vectors along what is contiguous; a tile in local memory where arrays are contiguous along
different maps ("MetaSchedule", NeurIPS'22, calls it a cooperative read); the parts of a long reduce
as lanes or as work-items (Ansor's "rfactor", "Parallel Associative Reductions in Halide", CGO'17).
"""

from __future__ import annotations

from mapper.schedules.sketches.analysis import Nest
from mapper.schedules.sketches.draft import Draft
from mapper.schedules.sketches.names import chained, split_by_dimensions, split_in_two

#: Parts of a reduce that other groups sum up.
MOST_PARTS = 64


def vectors(draft: Draft, nest: Nest, place: int) -> Draft:
    """Tiles of one map, whose iterations are lanes; all else stays parallel outside."""
    loop = nest.loops[place].name
    draft, around, lanes = split_in_two(draft, loop, f"lanes_{loop}", nest.loops[place].trip)
    order = [around if other.name == loop else other.name for other in nest.loops]
    return draft.then("reorder", (*order, lanes))


def transposed(draft: Draft, nest: Nest, places: tuple[int, int], local: bool) -> Draft:
    """Tiles of two maps; with ``local`` read along one and written along the other."""
    around: list[str] = []
    inside: list[str] = []
    for place in places:
        loop = nest.loops[place]
        draft, *made = split_in_two(draft, loop.name, f"tile_{loop.name}", loop.trip)
        around.append(made[0])
        inside.append(made[1])
    rest = [loop.name for k, loop in enumerate(nest.loops) if k not in places]
    draft = draft.then("reorder", (*rest, *around, *inside))
    if local:
        for operand in nest.operands:
            dense = draft.maybe("overlap", around[-1], operand.base)
            draft = dense.then("stage", around[-1], operand.base, "local", padding="bank")
    return draft


def parts(draft: Draft, nest: Nest, memory: str, *, lanes: bool) -> Draft:
    """Neighbours of what is reduced in neighbouring parts, which are combined at the end.

    ``lanes``: one work-item steps over all the accumulators, chunk after chunk.
    """
    if nest.epilogue:
        draft = draft.maybe("fission", nest.loops[-1].name)
    draft = draft.then("split_reduce", nest.reduce, f"parts_{nest.kernel}")
    around, inside = chained(nest.reduce)
    draft = draft.then("interchange_reduces", around)
    draft = draft.then("rfactor", inside, "1", memory=memory)
    if not lanes:
        return draft.maybe("flatten_reduces", inside)
    draft = draft.then("flatten_reduces", inside).then("move_inside", f"{inside}_part")
    draft = draft.then("split_reduce", inside, f"chunk_{nest.kernel}")
    return draft.maybe("unroll", chained(inside)[1], switch=f"unroll_{nest.kernel}")


def over_groups(draft: Draft, nest: Nest) -> Draft:
    """Parts of a long reduce by other groups, in a kernel before the one that combines them."""
    draft = draft.then("rfactor", nest.reduce, f"part_{nest.kernel}", memory="global")
    return _parts_apart(draft, nest, nest.reduce)


def split_over_groups(draft: Draft, nest: Nest) -> Draft:
    """As :func:`over_groups`, parts of the longest dimension that no window slides along alone, and
    no more of them than :data:`MOST_PARTS`; windows stay whole, so that the parts can be tiled.

    Each part's results lie side by side as those of the whole do.
    """
    draft, reduces = split_by_dimensions(draft, nest)
    place = nest.longest_plain
    first = reduces.pop(place)
    if place:
        draft = draft.then("reorder_reduces", (first, *reduces))
    part = f"part_{nest.kernel}"
    draft = draft.then("rfactor", first, part, memory="global")
    draft = _parts_apart(draft, nest, first)
    for _ in reduces:
        draft = draft.then("flatten_reduces", first)
    # A sum that was made of several has a dimension of one element, behind that of the parts.
    depth = len(nest.loops)
    behind = (depth + 1,) if reduces else ()
    written = depth - 1 if nest.written is None else nest.written
    maps = (*(k for k in range(depth) if k != written), written)
    draft = draft.maybe("layout", f"{nest.kernel}_parts", (depth, *behind, *maps))
    draft = draft.maybe("reorder", tuple(f"{nest.loops[k].name}_out" for k in maps))
    steps = nest.factors[place][1]
    few = tuple(n for n in range(1, steps) if steps % n == 0 and steps // n <= MOST_PARTS)
    return draft.then("narrow", part, few)


def _parts_apart(draft: Draft, nest: Nest, reduce: str) -> Draft:
    for loop in reversed(nest.loops):
        draft = draft.then("fission", loop.name, memory="global")
    return draft.then("materialise", f"{reduce}_parts", f"{nest.kernel}_parts")
