"""Stage: what a loop's iteration reads of an array, copied to a memory first."""

from __future__ import annotations

from collections.abc import Sequence

from mapper.ast_model.index_expr import const
from mapper.ast_model.nodes import Join, Let, MapId, Node, Pad, Program, Ref, Split, To
from mapper.ast_model.types import Memory, dimensions
from mapper.schedules.carried import OldBody, carried, one_part, with_parts
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
) -> Step:
    """The loop's body reads ``base`` from a copy, ``<base>_<memory>``, made by maps of that name.

    ``order`` are the copy's dimensions, outermost first, as places of those that are read;
    ``padding`` is the number of elements added to its innermost dimension, so that no two rows
    begin in one bank; ``vector`` is the length of an innermost map of the copy, which a vector
    code can take, and ``apart`` makes it a dimension of the buffer, which registers need that are
    vectors. What is staged is what the element holds: overlap first where that are windows.
    """
    names = Names(program)
    found = carried(NAME, names, program, loop)
    place = one_part(NAME, found, loop, base)
    part = found.parts[place]
    rank = len(dimensions(part.type)[0])
    wanted = tuple(order) or tuple(range(rank))
    if sorted(wanted) != list(range(rank)):
        raise refusal(NAME, loop, "the order is no permutation of the dimensions",
                      str(list(wanted)), f"0 to {rank - 1} in some order")  # fmt: skip
    more, width = as_size(padding), as_size(vector)
    stem = f"{base}_{memory.value}"
    parameters = [
        *parameters_for(program, more, tuple(range(MAX_PADDING))),
        *parameters_for(
            program, width, divisors(program, dimensions(part.type)[0][wanted[-1]] + more)
        ),
    ]

    def body(new: list[Node], old_body: OldBody) -> Node:
        source = permuted(names, new[place], wanted)
        if more != 0:
            source = at_depth(names, lambda v: Pad(const(0), more, 0.0, v), source, rank - 1)
        map_id = names.map_id(stem)
        if width == 1:
            copy = copied(names, map_id, source, rank)
        else:
            vectors = at_depth(names, lambda v: Split(width, v), source, rank - 1)
            copy = copied(names, map_id, vectors, rank + 1)
            if not apart:
                copy = at_depth(names, Join, copy, rank - 1)
        name = names.value(stem.replace(" ", "_"))
        read: Node = Ref(name)
        if apart and width != 1:
            read = at_depth(names, Join, read, rank - 1)
        if more != 0:
            read = at_depth(names, lambda v: Pad(const(0), -more, 0.0, v), read, rank - 1)
        new[place] = permuted(names, read, [wanted.index(k) for k in range(rank)])
        return Let(name, To(memory, copy), old_body(new))

    after = with_parts(names, found, [p.array for p in found.parts], body)
    return step(NAME, loop, program, after, parameters)
