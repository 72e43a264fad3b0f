"""Spread: an accumulator's outermost dimensions over the work-items of a group."""

from __future__ import annotations

from dataclasses import replace

from mapper.ast_model.nodes import Let, Map, Node, Program, To
from mapper.ast_model.types import Memory, dimensions
from mapper.schedules.find import find_reduce
from mapper.schedules.folds import accumulator_maps
from mapper.schedules.step import Step, refusal, step

NAME = "spread"


def spread(program: Program, name: str, dimensions_: int) -> Step:
    """The ``dimensions_`` outermost dimensions of this reduce's private accumulator spread.

    The step must map over these dimensions outermost, each map directly in the one before: if the
    maps are local then, each work-item keeps its own elements in registers.
    """
    found = find_reduce(NAME, program, name)
    start = found.node.initial
    if not isinstance(start, To) or start.memory is not Memory.PRIVATE:
        raise refusal(NAME, name, "the accumulator has no private memory of its own", "",
                      "to_private(…)", "stage_accumulator first")  # fmt: skip
    rank = len(dimensions(found.accumulator)[0])
    if not 0 < dimensions_ <= rank:
        raise refusal(NAME, name, "the accumulator has other dimensions", str(dimensions_),
                      f"1 to {rank}")  # fmt: skip
    body: Node = found.node.body
    while isinstance(body, Let):
        body = body.body
    maps = accumulator_maps(body, found.node.accumulator)
    if maps < dimensions_:
        raise refusal(NAME, name, "the step does not begin with maps over these dimensions",
                      f"{maps} maps", f"{dimensions_}", "move_inside more maps")  # fmt: skip
    after = found.site.replaced(replace(found.node, initial=replace(start, spread=dimensions_)))
    assert isinstance(found.node.body, Map | Let)
    return step(NAME, name, program, after)
