"""Split: a map as a map of tiles around a map in a tile."""

from __future__ import annotations

from dataclasses import replace
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
from mapper.ast_model.types import TupleType, dimensions
from mapper.schedules.access import Chain, chain_of
from mapper.schedules.find import find_map
from mapper.schedules.grow import grown
from mapper.schedules.leaves import assembled, leaves
from mapper.schedules.simplify import simplified
from mapper.schedules.sizes import (
    Size,
    as_size,
    coarsely,
    divisors,
    lengths,
    overhangs,
    parameters_for,
    upto,
)
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.tree import Site, is_view, with_child
from mapper.schedules.unique import Names

NAME = "split"


class Overhang(StrEnum):
    """What happens to a tile that the length does not fill.

    DIVISIBLE: there is none, the size divides the length. PADDED: a parameter says how much is
    added at the end, less than a tile. OPTIMISED: as PADDED, and it may be more than a tile: the
    "optimisational padding" of GPGPU'20, section 4.2. GUARDED: as much as is needed is added,
    whatever the size is.
    """

    DIVISIBLE = "divisible"
    PADDED = "padded"
    OPTIMISED = "optimised"
    GUARDED = "guarded"


def split(
    program: Program,
    map_id: MapId,
    size: Size,
    overhang: Overhang = Overhang.DIVISIBLE,
    padding: str = "",
    coarse: bool = False,
) -> Step:
    """``row`` as ``row_tile`` around ``row_in_tile`` of ``size`` iterations.

    PADDED and OPTIMISED name their parameter ``padding`` (``rho_`` and the id if it is empty).
    What is added is computed and dropped: the argument must be a view then. ``coarse``: a new
    parameter for the size has fewer values the larger they are, beside those that divide the
    length.
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
        domain = coarsely(program, length) if coarse else upto(program, length)
        parameters += parameters_for(program, tile, domain)
        if overhang is not Overhang.GUARDED:
            extra = symbol(padding or f"rho_{map_id}")
            exactly = coarse and overhang is Overhang.PADDED
            values = overhangs(program, length, domain) if exactly else tuple(range(max(domain)))
            parameters += parameters_for(program, extra, values)
            requirements = [Requirement(tile, Relation.DIVIDES, length + extra)]
            if overhang is Overhang.PADDED:
                requirements.append(Requirement(extra, Relation.LT, tile))
        else:
            # What is left of the last tile; never negative, and known to be so.
            extra = modulo(-length, tile)
    if not lengths(program, length):
        raise refusal(NAME, map_id, "no value of the parameters gives the map a length")
    tiles = names.value("tile")
    inside = Map(inner, node.parameter, node.body, Ref(tiles))
    chain = chain_of(found) if extra != 0 else Chain((found.site,), node.argument, found.argument)
    result: Node = Join(Map(outer, tiles, inside, Split(tile, node.argument)))
    if extra != 0:
        result = Pad(const(0), -extra, 0.0, result)
        longer = _longer(names, chain, extra)
        if chain.depth == 1:
            result = Pad(
                const(0), -extra, 0.0, Join(Map(outer, tiles, inside, Split(tile, longer)))
            )
        else:
            result = _handed_on(chain, found.site, result, longer)
    after = chain.loops[0].replaced(result)
    return step(NAME, map_id, program, after, parameters, requirements)


def _handed_on(chain: Chain, site: Site, node: Node, argument: Node) -> Node:
    """The chain's outermost map with another argument, and another node in place of the last."""
    top = chain.loops[0]
    for parent, field in reversed(site.path[len(top.path) :]):
        node = with_child(parent, field, node)
    assert isinstance(node, Map)
    return replace(node, argument=argument)


def _longer(names: Names, chain: Chain, extra: Expr) -> Node:
    """What the chain goes over, ``extra`` elements longer for its last loop.

    What is added is never looked at, so that it may stand in the border of the array below.
    """
    depth = chain.depth - 1
    if not isinstance(dimensions(chain.type)[1], TupleType):
        return grown(names, chain.argument, depth, extra)
    parts = [grown(names, simplified(part), depth, extra)
             for part in leaves(names, chain.argument, chain.type)]  # fmt: skip
    return assembled(names, chain.type, parts)


def check_ids(primitive: str, target: object, *ids: str) -> None:
    """NotApplicable if an id that a primitive made up is too long."""
    for name in ids:
        if len(name) > 63:
            raise refusal(primitive, target, "the new map's id would be too long", name,
                          "63 characters", "a shorter name")  # fmt: skip
