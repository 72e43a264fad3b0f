"""Split a reduce: steps in chunks, one chunk after the other."""

from __future__ import annotations

from mapper.ast_model.index_expr import as_expr
from mapper.ast_model.nodes import Join, Literal, Map, Node, Program, Reduce, Ref, Split, To
from mapper.ast_model.types import ArrayType, Type
from mapper.schedules.find import ReduceSite, find_reduce
from mapper.schedules.nests import constants, copied
from mapper.schedules.sizes import Size, as_size, divisors, parameters_for
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.tree import is_view, substituted
from mapper.schedules.unique import Names

NAME = "split_reduce"


def split_reduce(program: Program, name: str, size: Size, among: tuple[int, ...] = ()) -> Step:
    """``channel`` as ``channel_tile`` around ``channel_in_tile`` of ``size`` steps.

    A parameter that the size names first has the values ``among``; if there are none, all that
    divide a length. The order of the steps stays, so any operator will do. A scalar accumulator
    becomes an array of one element, which the maps ``<name>_zero`` and ``<name>_one`` write.
    """
    found = find_reduce(NAME, program, name)
    names, tile = Names(program), as_size(size)
    if not is_view(found.node.argument):
        raise refusal(NAME, name, "what is reduced is computed", "", "a view", "stage it first")
    if isinstance(found.node.initial, Ref) and not isinstance(found.accumulator, ArrayType):
        raise refusal(NAME, name, "it goes on with a scalar of a reduce around it", "",
                      "an array", "split the outer reduce first")  # fmt: skip
    if any(value < 1 for value in among):
        raise refusal(NAME, name, "a size is no positive number", str(min(among)), "1 and more")
    node, wrapped = boxed(names, found)
    outer, chunk = names.value("acc"), names.value(f"{name}_tile")
    inside = Reduce(
        node.accumulator,
        names.value(f"{name}_in_tile"),
        node.body,
        Ref(outer),
        Ref(chunk),
        node.unroll,
    )
    inside = Reduce(
        inside.accumulator,
        inside.parameter,
        substituted(node.body, {node.parameter: Ref(inside.parameter)}),
        inside.initial,
        inside.argument,
        node.unroll,
    )
    result: Node = Reduce(
        outer,
        chunk,
        Join(inside),
        node.initial,
        Split(tile, node.argument),
        as_expr(0),
        node.prefetch,
    )
    values = tuple(sorted(set(among))) or divisors(program, found.length)
    parameters = parameters_for(program, tile, values)
    after = found.site.replaced(Join(result) if wrapped else result)
    return step(NAME, name, program, after, parameters)


def boxed(names: Names, found: ReduceSite) -> tuple[Reduce, bool]:
    """The reduce with an array as its accumulator, and whether it had a scalar before.

    Then its result is [[T]1]1 instead of [T]1.
    """
    node = found.node
    if isinstance(found.accumulator, ArrayType):
        return node, False
    element = names.value("z")
    said = node.parameter.rstrip("0123456789")
    start = node.initial.argument if isinstance(node.initial, To) else node.initial
    zero = names.map_id(f"{said}_zero")
    initial: Node
    if isinstance(start, Literal):
        initial = constants(names, (zero,), start, (as_expr(1),))
    else:
        raise_from = Split(as_expr(1), start)
        initial = copied(names, zero, raise_from, 1)
    if isinstance(node.initial, To):
        initial = To(node.initial.memory, initial)
    body = Map(
        names.map_id(f"{said}_one"),
        element,
        substituted(node.body, {node.accumulator: Ref(element)}),
        Ref(node.accumulator),
    )
    return Reduce(
        node.accumulator, node.parameter, body, initial, node.argument, node.unroll, node.prefetch
    ), True


def scalar(type_: Type) -> bool:
    """True for what is no array."""
    return not isinstance(type_, ArrayType)
