"""Interleave: steps of a reduce in an order in which neighbours are in different chunks."""

from __future__ import annotations

from dataclasses import replace

from mapper.ast_model.index_expr import exact_div
from mapper.ast_model.nodes import OrderKind, Program, Reorder, Zip
from mapper.ast_model.types import TupleType
from mapper.schedules.find import find_reduce
from mapper.schedules.folds import fold_of
from mapper.schedules.leaves import leaves
from mapper.schedules.sizes import Size, as_size, divisors, parameters_for
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.tree import is_view
from mapper.schedules.unique import Names

NAME = "interleave"


def interleave(program: Program, name: str, size: Size, switch: Size = 1) -> Step:
    """Chunks of ``size`` neighbouring steps take every so many-th element, if ``switch`` is 1.

    Chunks that run side by side then read neighbours at the same time (coalescing: GPGPU'20,
    section 4.2). ``split_reduce`` by the same size makes them. For sums, products, maxima and
    minima, whose order does not matter. ``switch`` is a number, or a parameter that is 0 or 1.
    """
    found = find_reduce(NAME, program, name)
    node, names = found.node, Names(program)
    chunk, on = as_size(size), as_size(switch)
    if fold_of(program, found) is None:
        raise refusal(NAME, name, "the operator is not known to be associative and to commute",
                      "", "a sum, product, maximum or minimum of the accumulator")  # fmt: skip
    if not is_view(node.argument):
        raise refusal(NAME, name, "what is reduced is computed", "", "a view", "stage it first")
    stride = 1 + on * (exact_div(found.length, chunk) - 1)
    if stride == 1:
        raise refusal(NAME, name, "the order stays as it is", str(on), "1, or a parameter")
    parts = leaves(names, node.argument, found.argument)
    ordered = tuple(Reorder(OrderKind.STRIDE, stride, part) for part in parts)
    several = isinstance(found.argument.element, TupleType)
    argument = Zip(ordered) if several else ordered[0]
    parameters = [
        *parameters_for(program, chunk, divisors(program, found.length)),
        *parameters_for(program, on, (0, 1)),
    ]
    after = found.site.replaced(replace(node, argument=argument))
    return step(NAME, name, program, after, parameters)
