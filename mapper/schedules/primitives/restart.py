"""Restart: a reduce that goes on with an accumulator from outside sums for itself, and adds."""

from __future__ import annotations

from dataclasses import replace

from mapper.ast_model.builders import said_name
from mapper.ast_model.nodes import Join, Let, Literal, Map, Node, Program, Reduce, Ref, Split, To
from mapper.ast_model.types import ArrayType, Memory, TupleType, dimensions
from mapper.schedules.find import find_reduce
from mapper.schedules.folds import fold_of, neutral_start, start_of
from mapper.schedules.nests import zip_nd
from mapper.schedules.primitives.split import check_ids
from mapper.schedules.primitives.stage_accumulator import combining
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.tree import is_view, substituted
from mapper.schedules.unique import Names

NAME = "restart"


def restart(program: Program, name: str, memory: Memory = Memory.PRIVATE) -> Step:
    """A reduce that goes on with an accumulator sums for itself; ``<name>_add`` adds the sum.

    ``reduce(f, acc, a)`` becomes ``let t = to_private(reduce(f, zero, a))`` and ``acc + t``.

    Only where the operator is associative with a neutral element. The sum of one element, which a
    map of one iteration steps over, becomes a scalar. What the maps around do can be cut there
    (``fission``): first sums of all, then their addition.
    """
    found = find_reduce(NAME, program, name)
    node, names = found.node, Names(program)
    if not isinstance(found.accumulator, ArrayType):
        raise refusal(NAME, name, "its accumulator is a scalar, and nothing around it goes on", "",
                      "a reduce inside one that split_reduce made")  # fmt: skip
    if isinstance(dimensions(found.accumulator)[1], TupleType):
        raise refusal(NAME, name, "tuples cannot be stored")
    if not is_view(node.initial) or start_of(node.initial) is not None:
        raise refusal(NAME, name, "it does not go on with an accumulator from outside", "",
                      "the inner one of two reduces")  # fmt: skip
    fold = fold_of(program, found)
    if fold is None:
        raise refusal(NAME, name, "the operator is not known to be associative",
                      "", "a sum, product, maximum or minimum")  # fmt: skip
    stem = said_name(name) or name
    check_ids(NAME, name, f"{stem}_add")
    rank = len(dimensions(found.accumulator)[0])
    value: Node
    read: Node
    sums = names.value(f"{stem}_sums")
    scalar = _scalar(node, fold.neutral) if found.accumulator.length == 1 else None
    if scalar is not None and rank == 1:
        value, read = To(memory, scalar), Ref(sums)
    else:
        start = neutral_start(names, f"{stem}_restart", fold, found.accumulator)
        value, read = replace(node, initial=To(memory, start)), Join(Ref(sums))
    both = zip_nd(names, rank, (node.initial, read))
    added = combining(names, f"{stem}_add", fold.operator, both, rank)
    result = Let(sums, value, Split(found.accumulator.length, added))
    return step(NAME, name, program, found.site.replaced(result))


def _scalar(node: Reduce, neutral: float) -> Reduce | None:
    """The reduce with a scalar accumulator, if its steps are maps over the one element."""
    one = node.body
    if not isinstance(one, Map) or one.argument != Ref(node.accumulator):
        return None
    body = substituted(one.body, {one.parameter: Ref(node.accumulator)})
    return replace(node, body=body, initial=Literal(neutral))
