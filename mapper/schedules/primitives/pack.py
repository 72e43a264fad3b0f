"""Pack: what a loop reads of an array, laid out tile after tile by a kernel that runs before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mapper.ast_model.bounds import is_name
from mapper.ast_model.nodes import Kernel, MapId, Program, Ref
from mapper.schedules.affine import Margin, element, tiles, with_repeats, without_repeats
from mapper.schedules.carried import (
    base_node,
    carried,
    is_closed,
    one_part,
    part_tiling,
    with_same_parts,
)
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
    found = carried(NAME, names, program, loop, every=True)
    place = one_part(NAME, found, loop, base, use)
    tiling = part_tiling(NAME, found, loop, place)
    source = base_node(names, found, place)
    taken = {i.name for i in program.inputs} | {k.name for k in program.kernels}
    taken |= {n for n, _ in program.sizes} | {p.name for p in program.parameters}
    if kernel in taken or not is_name(kernel):
        raise refusal(NAME, loop, "the kernel's name is taken or unusable", kernel, "a new name")
    own = found.found.site.kernel.name
    if not is_closed(source, program, own):
        raise refusal(NAME, loop, f"what is read of {base} depends on loops around", "",
                      "an input or an earlier kernel", "pack it at the outermost loop")  # fmt: skip
    core = without_repeats(tiling)
    rank = len(core.outer) + len(core.kept)
    wanted = tuple(order) or tuple(range(rank))
    if sorted(wanted) != list(range(rank)):
        raise refusal(NAME, loop, "the order is no permutation of the dimensions",
                      str(list(wanted)), f"0 to {rank - 1} in some order")  # fmt: skip
    packed = permuted(names, tiles(names, source, core, Margin()), wanted)
    made = Kernel(kernel, copied(names, names.map_id(kernel), packed, rank))
    back = permuted(names, Ref(kernel), [wanted.index(k) for k in range(rank)])
    arrays = [part.array for part in found.parts]
    arrays[place] = at_depth(
        names,
        lambda tile: element(names, tile, tiling, Margin()),
        with_repeats(names, back, tiling),
        found.chain.depth,
    )
    after = with_same_parts(names, found, arrays)
    kernels = list(after.kernels)
    kernels.insert([k.name for k in kernels].index(own), made)
    return step(NAME, loop, program, replace(after, kernels=tuple(kernels)))
