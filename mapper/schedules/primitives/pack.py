"""Pack: what a loop reads of an array, laid out tile after tile by a kernel that runs before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mapper.ast_model.nodes import Kernel, MapId, Node, Program, Ref
from mapper.schedules.affine import Margin, Tiling, element, tiles, with_repeats, without_repeats
from mapper.schedules.carried import (
    Carried,
    base_node,
    carried,
    is_closed,
    one_part,
    part_tiling,
    with_same_parts,
)
from mapper.schedules.find import check_new_kernel
from mapper.schedules.nests import at_depth, copied, permuted
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.unique import Names

NAME = "pack"


def pack(
    program: Program,
    loop: MapId,
    base: str,
    kernel: str,
    order: Sequence[int] = (),
    use: int = 0,
) -> Step:
    """A kernel ``kernel`` writes the tiles of ``base`` that the loop reads; the loop reads those.

    Its dimensions are those loops around that the tile depends on, then the tile's own;
    ``order`` permutes them. Where the loop reads the array in several places, each has tiles of its
    own: ``use`` says which, counted from 1. Of an input that is a ``constant`` it runs once.
    Applies where the tiles depend on inputs and earlier kernels only.
    """
    names = Names(program)
    found, place, tiling, source = read_before(NAME, names, program, loop, base, kernel, use)
    core = without_repeats(tiling)
    rank = len(core.outer) + len(core.kept)
    wanted = tuple(order) or tuple(range(rank))
    if sorted(wanted) != list(range(rank)):
        raise refusal(NAME, loop, "the order is no permutation of the dimensions",
                      str(list(wanted)), f"0 to {rank - 1} in some order")  # fmt: skip
    packed = permuted(names, tiles(names, source, core, Margin()), wanted)
    made = Kernel(kernel, copied(names, names.map_id(kernel), packed, rank))
    back = permuted(names, Ref(kernel), [wanted.index(k) for k in range(rank)])
    return step(NAME, loop, program, behind(names, found, place, made, back, tiling))


def read_before(
    primitive: str, names: Names, program: Program, loop: MapId, base: str, kernel: str, use: int
) -> tuple[Carried, int, Tiling, Node]:
    """What a loop reads of an array that a new kernel of this name can read before it: the loop,
    the place among its parts, how it is cut, and the array; else NotApplicable."""
    found = carried(primitive, names, program, loop, every=True)
    place = one_part(primitive, found, loop, base, use)
    tiling = part_tiling(primitive, found, loop, place)
    source = base_node(names, found, place)
    check_new_kernel(primitive, program, loop, kernel)
    if not is_closed(source, program, found.found.site.kernel.name):
        raise refusal(primitive, loop, f"what is read of {base} depends on loops around", "",
                      "an input or an earlier kernel", "the outermost loop")  # fmt: skip
    return found, place, tiling, source


def behind(
    names: Names, found: Carried, place: int, made: Kernel, cut: Node, tiling: Tiling
) -> Program:
    """The program with a kernel before the loop's own, whose loop reads at a place among its parts
    the tiles ``cut`` of what that kernel wrote, those of a tiling without repeats."""
    arrays = [part.array for part in found.parts]
    arrays[place] = at_depth(
        names,
        lambda tile: element(names, tile, tiling, Margin()),
        with_repeats(names, cut, tiling),
        found.chain.depth,
    )
    after = with_same_parts(names, found, arrays)
    kernels = list(after.kernels)
    kernels.insert([k.name for k in kernels].index(found.found.site.kernel.name), made)
    return replace(after, kernels=tuple(kernels))
