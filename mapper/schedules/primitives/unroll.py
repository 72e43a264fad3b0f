"""Unroll: the steps of a reduce written out one by one."""

from __future__ import annotations

from dataclasses import replace

from mapper.ast_model.nodes import Program
from mapper.schedules.find import find_reduce
from mapper.schedules.sizes import Size, as_size, parameters_for
from mapper.schedules.step import Step, refusal, step

NAME = "unroll"


def unroll(program: Program, name: str, switch: Size = 1) -> Step:
    """This reduce unrolled if ``switch`` is 1: the number, or a parameter that is 0 or 1."""
    found = find_reduce(NAME, program, name)
    value = as_size(switch)
    if value == found.node.unroll:
        raise refusal(NAME, name, "it is so already", str(value))
    parameters = parameters_for(program, value, (0, 1))
    after = found.site.replaced(replace(found.node, unroll=value))
    return step(NAME, name, program, after, parameters)
