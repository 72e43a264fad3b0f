"""Separate: maps of a perfect nest go over the arrays that depend on them, and no others."""

from __future__ import annotations

from itertools import groupby

from mapper.ast_model.nodes import Get, Map, MapId, Node, Program, Ref
from mapper.schedules.access import Chain
from mapper.schedules.affine import Tiling, again, made_anew
from mapper.schedules.carried import base_node, carried, part_tiling, with_arguments
from mapper.schedules.find import MapSite
from mapper.schedules.nests import zip_nd
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.unique import Names

NAME = "separate"


def separate(program: Program, map_id: MapId) -> Step:
    """The nest that ends in this map with each array handed on by the maps that it depends on.

    A filter that rows and columns repeat is what the map over filters goes over, and nothing else
    is; rows go over the image alone. The opposite of ``nest``: maps are perfectly nested no longer
    where they go over different arrays, and are said to read what they read.
    """
    names = Names(program)
    found = carried(NAME, names, program, map_id)
    chain = found.chain
    if not isinstance(found.found, MapSite) or chain.depth < 2:
        raise refusal(NAME, map_id, "no map around it hands its element on", "",
                      "the innermost of a perfect nest")  # fmt: skip
    tilings = [part_tiling(NAME, found, map_id, k) for k in range(len(found.parts))]
    along = [_along(tiling) for tiling in tilings]
    everywhere = list(range(chain.depth))
    idle = [k for k in everywhere if not any(k in one for one in along)]
    if idle:
        where = str(getattr(chain.loops[idle[0]].node, "id", ""))
        raise refusal(NAME, map_id, "a map repeats all that is in it", where, "an array for each")
    if all(one == everywhere for one in along):
        raise refusal(NAME, map_id, "every array is gone along by all of the maps")
    views = [
        made_anew(names, base_node(names, found, k), tiling) for k, tiling in enumerate(tilings)
    ]
    arguments: list[Node] = []
    # Neighbours along which the same arrays go stay perfectly nested.
    for mine, run in groupby(everywhere, lambda k: [k in one for one in along]):
        loops = list(run)
        handed = [k for k, goes in enumerate(mine) if goes]
        arguments.append(zip_nd(names, len(loops), tuple(views[k] for k in handed)))
        arguments += [Ref(_parameter(chain, k)) for k in loops[:-1]]
        element = Ref(_parameter(chain, loops[-1]))
        for place, k in enumerate(handed):
            views[k] = element if len(handed) == 1 else Get(place, element)
    elements = [again(names, v, tiling) for v, tiling in zip(views, tilings, strict=True)]
    after = with_arguments(names, found, arguments, elements)
    return step(NAME, map_id, program, after)


def _parameter(chain: Chain, position: int) -> str:
    loop = chain.loops[position].node
    assert isinstance(loop, Map)
    return loop.parameter


def _along(tiling: Tiling) -> list[int]:
    """The loops that an array depends on."""
    used = {term.variable for d in tiling.dimensions for term in d.outer}
    return [k for k, (variable, _) in enumerate(tiling.outer) if variable in used]
