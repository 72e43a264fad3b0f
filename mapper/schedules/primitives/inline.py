"""Inline: a copy undone, so that its readers read what was copied."""

from __future__ import annotations

from mapper.ast_model.nodes import Call, Layout, Let, Map, Node, Program, To
from mapper.schedules.find import find_let
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.tree import is_view, rebuilt, substituted

NAME = "inline"


def inline(program: Program, name: str) -> Step:
    """The body of ``let name = to_local(map … id …)`` reads the view instead of the copy.

    Applies to values that are views, or copies of views: maps of ``id``, perhaps laid out anew.
    """
    site = find_let(NAME, program, name)
    let = site.node
    assert isinstance(let, Let)
    if any(f.name == "id" for f in program.functions):
        raise refusal(NAME, name, "the program has a function of its own called id")
    view = _read_directly(let.value)
    if view is None:
        raise refusal(NAME, name, "its value is computed", "", "a copy: maps of id over a view",
                      "compute_at for kernels")  # fmt: skip
    return step(NAME, name, program, site.replaced(substituted(let.body, {let.name: view})))


def _read_directly(node: Node) -> Node | None:
    """The view that a copy was made of."""
    match node:
        case To(_, argument):
            return _read_directly(argument)
        case Map(map_id, parameter, body, argument):
            inner = _read_directly(body)
            if inner is None or not is_view(argument):
                outer = _read_directly(argument)
                return None if inner is None or outer is None else (
                    Map(map_id, parameter, inner, outer))  # fmt: skip
            return Map(map_id, parameter, inner, argument)
        case Call("id", (argument,)):
            return _read_directly(argument)
        case _ if isinstance(node, Layout):
            inner = _read_directly(node.argument)
            return None if inner is None else rebuilt(node, lambda _: inner)
        case _:
            return node if is_view(node) else None
