"""Dot: steps of a sum of products over vectors, a dot product each."""

from __future__ import annotations

from mapper.ast_model.builders import call, get
from mapper.ast_model.nodes import AsVector, Call, Get, Node, Program, Reduce, Ref, Zip
from mapper.ast_model.types import ArrayType, ScalarType, TupleType
from mapper.schedules.find import find_reduce
from mapper.schedules.leaves import leaves
from mapper.schedules.primitives.overlap import VECTORS
from mapper.schedules.sizes import Size, as_size, divisors, parameters_for
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.tree import is_view
from mapper.schedules.unique import Names

NAME = "dot"


def dot(program: Program, name: str, width: Size) -> Step:
    """``fma(u, v, acc)`` of scalars as ``dot_add(acc, u, v)`` of vectors of ``width``.

    The order changes in which products are added up. The width divides the number of steps.
    """
    found = find_reduce(NAME, program, name)
    node, names, lanes = found.node, Names(program), as_size(width)
    if {f.name for f in program.functions} & {"fma", "add", "mul", "dot_add"}:
        raise refusal(NAME, name, "the program has a function of its own of that name")
    if isinstance(found.accumulator, ArrayType):
        raise refusal(NAME, name, "its accumulator is an array", str(found.accumulator),
                      "a scalar", "dot before maps are moved inside")  # fmt: skip
    element = found.argument.element
    items = element.items if isinstance(element, TupleType) else ()
    if not items or not all(isinstance(item, ScalarType) for item in items):
        raise refusal(NAME, name, "its steps are not over pairs of scalars", str(element))
    if not is_view(node.argument):
        raise refusal(NAME, name, "what is reduced is computed", "", "a view", "stage it first")
    factors = _factors(node)
    if factors is None:
        raise refusal(NAME, name, "its step is no sum of a product", "", "fma(u, v, acc)")
    parts = [AsVector(lanes, leaf) for leaf in leaves(names, node.argument, found.argument)]
    parameter = Ref(node.parameter)
    body = call("dot_add", Ref(node.accumulator), *(get(parameter, k) for k in factors))
    made = Reduce(
        node.accumulator, node.parameter, body, node.initial, Zip(tuple(parts)), node.unroll
    )
    widths = set(divisors(program, found.length)) & set(VECTORS)
    parameters = parameters_for(program, lanes, tuple(sorted(widths)))
    return step(NAME, name, program, found.site.replaced(made), parameters)


def _factors(node: Reduce) -> tuple[int, int] | None:
    """The components of a step's element whose product is added to the accumulator."""
    accumulator, element = Ref(node.accumulator), Ref(node.parameter)
    factors: tuple[Node, ...] = ()
    match node.body:
        case Call("fma", (left, right, term)) if term == accumulator:
            factors = left, right
        case Call("add", (term, Call("mul", inner))) if term == accumulator:
            factors = inner
        case _:
            return None
    found = [f.index for f in factors if isinstance(f, Get) and f.argument == element]
    return (found[0], found[1]) if len(found) == 2 else None
