"""Split: a map as a map of tiles around a map in a tile."""

from __future__ import annotations

from enum import StrEnum

from mapper.ast_model.index_expr import Expr, const, modulo, symbol
from mapper.ast_model.nodes import (
    Join,
    Map,
    MapId,
    Node,
    Pad,
    Parameter,
    Program,
    Ref,
    Relation,
    Requirement,
    Split,
)
from mapper.ast_model.types import TupleType, Type, dimensions
from mapper.schedules.find import find_map
from mapper.schedules.leaves import assembled, leaves
from mapper.schedules.sizes import Size, as_size, divisors, lengths, parameters_for, upto
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.tree import is_view
from mapper.schedules.unique import Names

NAME = "split"


class Overhang(StrEnum):
    """What happens to a tile that the length does not fill.

    DIVISIBLE: there is none, the size divides the length. PADDED: a parameter says how much is
    added at the end. GUARDED: as much as is needed is added, whatever the size is.
    """

    DIVISIBLE = "divisible"
    PADDED = "padded"
    GUARDED = "guarded"


def split(
    program: Program,
    map_id: MapId,
    size: Size,
    overhang: Overhang = Overhang.DIVISIBLE,
    padding: str = "",
) -> Step:
    """``row`` as ``row_tile`` around ``row_in_tile`` of ``size`` iterations.

    PADDED names its parameter ``padding`` (``rho_`` and the id if it is empty). What is added is
    computed and dropped: the argument must be a view then.
    """
    found = find_map(NAME, program, map_id)
    names, tile = Names(program), as_size(size)
    node, length = found.node, found.length
    outer, inner = names.map_id(f"{map_id}_tile"), names.map_id(f"{map_id}_in_tile")
    check_ids(NAME, map_id, outer, inner)
    extra: Expr = const(0)
    requirements: list[Requirement] = []
    parameters: list[Parameter] = []
    if overhang is Overhang.DIVISIBLE:
        parameters += parameters_for(program, tile, divisors(program, length))
    else:
        if not is_view(node.argument):
            raise refusal(NAME, map_id, "what is padded must be a view, and it is computed", "",
                          "stage the argument first, or a size that divides")  # fmt: skip
        domain = upto(program, length)
        parameters += parameters_for(program, tile, domain)
        if overhang is Overhang.PADDED:
            extra = symbol(padding or f"rho_{map_id}")
            values = tuple(range(max(domain)))
            parameters += parameters_for(program, extra, values)
            requirements = [
                Requirement(tile, Relation.DIVIDES, length + extra),
                Requirement(extra, Relation.LT, tile),
            ]
        else:
            # What is left of the last tile; never negative, and known to be so.
            extra = modulo(-length, tile)
    if not lengths(program, length):
        raise refusal(NAME, map_id, "no value of the parameters gives the map a length")
    argument = node.argument
    if extra != 0:
        argument = padded(names, argument, found.argument, extra)
    tiles = names.value("tile")
    result: Node = Join(
        Map(outer, tiles, Map(inner, node.parameter, node.body, Ref(tiles)), Split(tile, argument))
    )
    if extra != 0:
        result = Pad(const(0), -extra, 0.0, result)
    after = found.site.replaced(result)
    return step(NAME, map_id, program, after, parameters, requirements)


def padded(names: Names, node: Node, type_: Type, extra: Expr) -> Node:
    """The array with ``extra`` elements more of zeros; arrays of tuples are padded each."""
    if not isinstance(dimensions(type_)[1], TupleType):
        return Pad(const(0), extra, 0.0, node)
    parts: list[Node] = [Pad(const(0), extra, 0.0, part) for part in leaves(names, node, type_)]
    return assembled(names, type_, parts)


def check_ids(primitive: str, target: object, *ids: str) -> None:
    """NotApplicable if an id that a primitive made up is too long."""
    for name in ids:
        if len(name) > 63:
            raise refusal(primitive, target, "the new map's id would be too long", name,
                          "63 characters", "a shorter name")  # fmt: skip
