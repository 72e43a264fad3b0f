"""Prefetch and double buffer: what a step copies to local memory, loaded a step early."""

from __future__ import annotations

from dataclasses import replace

from mapper.ast_model.index_expr import Expr
from mapper.ast_model.nodes import Let, Program, To
from mapper.ast_model.types import Memory
from mapper.schedules.find import find_reduce
from mapper.schedules.sizes import Size, as_size, parameters_for
from mapper.schedules.step import Step, refusal, step


def prefetch(program: Program, name: str, buffers: Size = 1) -> Step:
    """The copies of the next step are loaded into registers during this one.

    ``buffers`` is 0, 1 or 2, or a parameter that is one of these: with 2 they go to two buffers in
    turns. The reduce's step must begin with a copy to local memory.
    """
    return _loaded_early("prefetch", program, name, as_size(buffers))


def double_buffer(program: Program, name: str) -> Step:
    """Two buffers in turns, so that one barrier a step is enough."""
    return _loaded_early("double_buffer", program, name, as_size(2))


def _loaded_early(primitive: str, program: Program, name: str, value: Expr) -> Step:
    found = find_reduce(primitive, program, name)
    body = found.node.body
    copies = 0
    while isinstance(body, Let):
        copies += isinstance(body.value, To) and body.value.memory is Memory.LOCAL
        body = body.body
    if not copies:
        raise refusal(primitive, name, "its step does not begin with a copy to local memory", "",
                      "let t = to_local(…) in …", "stage a view in local memory first")  # fmt: skip
    if value == found.node.prefetch:
        raise refusal(primitive, name, "it is so already", str(value))
    parameters = parameters_for(program, value, (0, 1, 2))
    after = found.site.replaced(replace(found.node, prefetch=value))
    return step(primitive, name, program, after, parameters)
