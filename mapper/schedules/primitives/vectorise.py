"""Vectorise: a map over scalars as a map over vectors."""

from __future__ import annotations

from mapper.ast_model.declarations import lane_reducing
from mapper.ast_model.nodes import (
    AsScalar,
    AsVector,
    Call,
    Get,
    Literal,
    Map,
    MapId,
    Node,
    Program,
    Ref,
    Zip,
)
from mapper.ast_model.types import ScalarType, TupleType
from mapper.schedules.facts import type_of
from mapper.schedules.find import find_map
from mapper.schedules.leaves import leaves
from mapper.schedules.sizes import Size, as_size, divisors, parameters_for
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.tree import bound_types, is_view
from mapper.schedules.unique import Names

NAME = "vectorise"


def vectorise(program: Program, map_id: MapId, width: Size) -> Step:
    """A map over scalars (or tuples of them) that works on vectors of ``width`` instead.

    Its body may hold user functions of its element, of constants and of scalars from outside,
    lane by lane; the width divides the length. A map that is split by a constant and keeps its
    scalars can take a vector code instead.
    """
    found = find_map(NAME, program, map_id)
    names, lanes = Names(program), as_size(width)
    node, element = found.node, found.argument.element
    items = element.items if isinstance(element, TupleType) else (element,)
    if not all(isinstance(item, ScalarType) for item in items):
        raise refusal(NAME, map_id, "its elements are no scalars", str(element),
                      "scalars, or tuples of them", "split or interchange first")  # fmt: skip
    if not is_view(node.argument):
        raise refusal(NAME, map_id, "its argument is computed", "", "a view", "stage it first")
    if not _lane_by_lane(program, node.body, node.parameter):
        raise refusal(NAME, map_id, "its body is more than user functions, lane by lane, of its "
                      "element and constants", "", "f(x, y, 1.0)")  # fmt: skip
    types = found.site.types()
    result = type_of(node.body, types | bound_types(node, types, program), program)
    if not isinstance(result, ScalarType):
        raise refusal(NAME, map_id, "its result is no scalar", str(result))
    parts = [AsVector(lanes, leaf) for leaf in leaves(names, node.argument, found.argument)]
    argument: Node = parts[0] if len(parts) == 1 else Zip(tuple(parts))
    after = found.site.replaced(AsScalar(Map(node.id, node.parameter, node.body, argument)))
    parameters = parameters_for(program, lanes, divisors(program, found.length))
    return step(NAME, map_id, program, after, parameters)


def _lane_by_lane(program: Program, node: Node, parameter: str) -> bool:
    """True for user functions that reduce no lanes, one of whose arguments is the element."""
    return _lanes(program, node, parameter) is True


def _lanes(program: Program, node: Node, parameter: str) -> bool | None:
    """True for vectors, False for scalars, None for what is neither for sure."""
    match node:
        case Ref(name):
            return name == parameter
        case Get(_, Ref(name)):
            return name == parameter
        case Literal():
            return False
        case Call(name, arguments):
            function = program.function(name)
            if function is None:
                return None
            found = [_lanes(program, a, parameter) for a in arguments]
            if None in found or lane_reducing(function, tuple(bool(f) for f in found)):
                return None
            return any(found)
        case _:
            return None
