"""Rfactor: the parts of a reduce made parallel, and a reduce that combines them."""

from __future__ import annotations

from dataclasses import replace

from mapper.ast_model.builders import call
from mapper.ast_model.nodes import Join, Let, Map, Node, Program, Reduce, Ref, Split, To
from mapper.ast_model.types import ArrayType, Memory, TupleType, dimensions
from mapper.schedules.find import find_reduce
from mapper.schedules.folds import fold_of, neutral_start
from mapper.schedules.nests import zip_nd
from mapper.schedules.primitives.split import check_ids
from mapper.schedules.primitives.stage_accumulator import combining
from mapper.schedules.sizes import Size, as_size, divisors, parameters_for
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.tree import is_view
from mapper.schedules.unique import Names

NAME = "rfactor"


def rfactor(program: Program, name: str, size: Size, memory: Memory = Memory.LOCAL) -> Step:
    """Parts of ``size`` steps by the map ``<name>_part`` in ``memory``, then ``<name>_sum``.

    The order changes in which terms are combined: only sums, products, maxima and minima whose
    every element is combined with a term that does not look at the accumulator. Inside a group
    the parts are in local memory; over groups in global memory, and ``materialise`` makes them a
    kernel of their own. As Halide's and TVM's ``rfactor``.
    """
    found = find_reduce(NAME, program, name)
    node, names, part = found.node, Names(program), as_size(size)
    fold = fold_of(program, found)
    if fold is None:
        raise refusal(NAME, name, "the operator is not known to be associative and to commute",
                      "", "a sum, product, maximum or minimum of the accumulator")  # fmt: skip
    if not is_view(node.argument):
        raise refusal(NAME, name, "what is reduced is computed", "", "a view", "stage it first")
    if isinstance(dimensions(found.accumulator)[1], TupleType):
        raise refusal(NAME, name, "tuples cannot be stored")
    stem = node.parameter.rstrip("0123456789")
    map_id = names.map_id(f"{stem}_part")
    check_ids(NAME, name, map_id)
    chunk, parts = names.value(f"{stem}_chunk"), names.value(f"{stem}_parts")
    start = neutral_start(names, f"{stem}_neutral", fold, found.accumulator)
    partial = replace(node, initial=start, argument=Ref(chunk))
    filled = To(memory, Join(Map(map_id, chunk, partial, Split(part, node.argument))))
    accumulator, one = names.value("acc"), names.value(f"{stem}_sum")
    body: Node
    if isinstance(found.accumulator, ArrayType):
        rank = len(dimensions(found.accumulator)[0])
        pairs = zip_nd(names, rank, (Ref(accumulator), Ref(one)))
        body = combining(names, f"{stem}_sum", fold.operator, pairs, rank)
    else:
        body = call(fold.operator, Ref(accumulator), Ref(one))
    total = Reduce(accumulator, one, body, node.initial, Ref(parts), node.unroll)
    parameters = parameters_for(program, part, divisors(program, found.length))
    after = found.site.replaced(Let(parts, filled, total))
    return step(NAME, name, program, after, parameters)
