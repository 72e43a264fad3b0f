"""Stage an accumulator: a memory of its own for the sums of a reduce, and what copies them out."""

from __future__ import annotations

from dataclasses import replace

from mapper.ast_model.builders import call, get
from mapper.ast_model.nodes import Join, Layout, Let, Map, Node, Program, Reduce, Split, To
from mapper.ast_model.types import ArrayType, Memory, TupleType, dimensions
from mapper.schedules.find import find_reduce
from mapper.schedules.folds import fold_of, neutral_start, start_of
from mapper.schedules.nests import copied, mapped, zip_nd
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.tree import Site, is_view
from mapper.schedules.unique import Names

NAME = "stage_accumulator"


def stage_accumulator(program: Program, name: str, memory: Memory = Memory.PRIVATE) -> Step:
    """The accumulator of this reduce in ``memory``; maps ``<map>_out`` write the result from it.

    A reduce that goes on with the accumulator of one around it loads nothing: it starts from the
    neutral element, and ``<name>_add`` adds what it found to the outer accumulator (only where the
    operator is associative).
    """
    found = find_reduce(NAME, program, name)
    node, names = found.node, Names(program)
    if not isinstance(found.accumulator, ArrayType):
        raise refusal(NAME, name, "a scalar accumulator is in a register already", "",
                      "an array", "move_inside a map first")  # fmt: skip
    if isinstance(node.initial, To):
        raise refusal(NAME, name, "it has a memory of its own already", node.initial.memory.value)
    if isinstance(dimensions(found.accumulator)[1], TupleType):
        raise refusal(NAME, name, "tuples cannot be stored")
    rank = len(dimensions(found.accumulator)[0])
    if is_view(node.initial) and start_of(node.initial) is None:
        fold = fold_of(program, found)
        if fold is None:
            raise refusal(NAME, name, "the operator is not known to be associative",
                          "", "a sum, product, maximum or minimum")  # fmt: skip
        start = neutral_start(names, f"{name}_hold", fold, found.accumulator)
        held = replace(node, initial=To(memory, start))
        combined = zip_nd(names, rank, (node.initial, Join(held)))
        result = combining(names, f"{name}_add", fold.operator, combined, rank)
        return step(NAME, name, program, found.site.replaced(
            Split(found.accumulator.length, result)))  # fmt: skip
    if is_view(node.initial):
        start = copied(names, names.map_id(f"{name}_start"), node.initial, rank)
    else:
        start = node.initial
    held = replace(node, initial=To(memory, start))
    if _is_read(found.site):
        return step(NAME, name, program, found.site.replaced(held))
    ids = out_ids(names, name, node.body, rank)
    result = copied(names, ids[0], Join(held), rank, ids)
    after = found.site.replaced(Split(found.accumulator.length, result))
    return step(NAME, name, program, after)


def out_ids(names: Names, name: str, body: Node, rank: int) -> tuple[str, ...]:
    """Ids for the maps that copy an accumulator out, after those that step over it."""
    found: list[str] = []
    while isinstance(body, Map | Join) and len(found) < rank:
        if isinstance(body, Map):
            found.append(f"{body.id}_out")
            body = body.body
        else:
            body = body.argument
            if isinstance(body, Reduce):
                body = body.body
    found += [f"{name}_out"] * (rank - len(found))
    return tuple(names.map_id(stem) for stem in found)


def combining(names: Names, stem: str, operator: str, array: Node, rank: int) -> Node:
    """A nest of maps over pairs that combines each."""
    ids = (names.map_id(stem), *(names.map_id(f"{stem}_{k}") for k in range(1, rank)))
    return mapped(names, ids, lambda z: call(operator, get(z, 0), get(z, 1)), array)


def _is_read(site: Site) -> bool:
    """True if what stands here is read by a map or a reduce, not written to a result."""
    while site.path:
        parent, field = site.path[-1]
        if isinstance(parent, Layout) or (isinstance(parent, Map) and is_view(parent.body)):
            if field == "body":
                return False
            site = site.up()
            continue
        if isinstance(parent, Let):
            if field == "value":
                return True
            site = site.up()
            continue
        return field != "body" and not isinstance(parent, To)
    return False
