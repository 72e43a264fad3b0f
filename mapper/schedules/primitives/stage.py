"""Stage: what a loop's iteration reads of an array, copied to a memory first."""

from __future__ import annotations

from collections.abc import Sequence

from mapper.ast_model.index_expr import const
from mapper.ast_model.nodes import Join, Let, MapId, Node, Pad, Program, Ref, Split, To
from mapper.ast_model.types import Memory, dimensions
from mapper.device_profile import VECTOR_WIDTHS
from mapper.schedules.affine import again, made_anew, repeated_inner, with_repeats
from mapper.schedules.carried import (
    OldBody,
    base_node,
    carried,
    one_part,
    part_tiling,
    with_parts,
)
from mapper.schedules.nests import at_depth, copied, permuted
from mapper.schedules.sizes import Size, as_size, divisors, parameters_for
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.unique import Names

NAME = "stage"
MAX_PADDING = 32


def stage(
    program: Program,
    loop: MapId,
    base: str,
    memory: Memory,
    *,
    order: Sequence[int] = (),
    padding: Size = 0,
    vector: Size = 1,
    apart: bool = False,
    as_read: bool = False,
    once: bool = False,
    use: int = 0,
) -> Step:
    """The loop's body reads ``base`` from a copy, ``<base>_<memory>``, made by maps of that name.

    ``order`` are the copy's dimensions, outermost first, as places of those that are read;
    ``padding`` is the number of elements added to its innermost dimension, so that no two rows
    begin in one bank; ``vector`` is the length of an innermost map of the copy, which a vector
    code can take, and ``apart`` makes it a dimension of the buffer, which registers need that are
    vectors. ``as_read``: the copy's maps go as the array is read, and so does a vector, in whatever
    ``order`` the copy is laid out. What is staged is what the element holds: overlap first where
    that are windows. ``once`` leaves out dimensions along which it holds the same again and again.
    ``use`` says in which of several places it is read, counted from 1.
    """
    names = Names(program)
    found = carried(NAME, names, program, loop)
    place = one_part(NAME, found, loop, base, use)
    part = found.parts[place]
    tiling = part_tiling(NAME, found, loop, place) if once else None
    left_out = () if tiling is None else repeated_inner(tiling)
    lengths = [n for k, n in enumerate(dimensions(part.type)[0]) if k not in left_out]
    rank = len(lengths)
    if rank == 0:
        raise refusal(NAME, loop, "it holds one element again and again", "", "an array")
    wanted = tuple(order) or tuple(range(rank))
    if sorted(wanted) != list(range(rank)):
        raise refusal(NAME, loop, "the order is no permutation of the dimensions",
                      str(list(wanted)), f"0 to {rank - 1} in some order")  # fmt: skip
    more, width = as_size(padding), as_size(vector)
    if as_read and apart:
        raise refusal(NAME, loop, "a copy as the array is read has no dimension for vectors",
                      "apart=true", "apart=false")  # fmt: skip
    stem = f"{base}_{memory.value}"
    inner = rank - 1 if as_read else wanted[-1]
    last = lengths[inner] + more if inner == wanted[-1] else lengths[inner]
    parameters = [
        *parameters_for(program, more, tuple(range(MAX_PADDING))),
        *parameters_for(
            program, width, tuple(n for n in divisors(program, last) if n in VECTOR_WIDTHS)
        ),
    ]

    def body(new: list[Node], old_body: OldBody) -> Node:
        source = new[place] if as_read else permuted(names, new[place], wanted)
        if more != 0:
            depth = wanted[-1] if as_read else rank - 1
            source = at_depth(names, lambda v: Pad(const(0), more, 0.0, v), source, depth)
        map_id = names.map_id(stem)
        if width == 1:
            copy = copied(names, map_id, source, rank)
        else:
            vectors = at_depth(names, lambda v: Split(width, v), source, rank - 1)
            copy = copied(names, map_id, vectors, rank + 1)
            if not apart:
                copy = at_depth(names, Join, copy, rank - 1)
        if as_read:
            copy = permuted(names, copy, wanted)
        name = names.value(stem.replace(" ", "_"))
        read: Node = Ref(name)
        if apart and width != 1:
            read = at_depth(names, Join, read, rank - 1)
        if more != 0:
            read = at_depth(names, lambda v: Pad(const(0), -more, 0.0, v), read, rank - 1)
        read = permuted(names, read, [wanted.index(k) for k in range(rank)])
        new[place] = read if tiling is None else again(names, read, tiling)
        return Let(name, To(memory, copy), old_body(new))

    arrays = [p.array for p in found.parts]
    if tiling is not None:
        anew = made_anew(names, base_node(names, found, place), tiling)
        arrays[place] = with_repeats(names, anew, tiling)
    after = with_parts(names, found, arrays, body)
    return step(NAME, loop, program, after, parameters)
