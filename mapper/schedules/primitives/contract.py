"""Contract: a product and a sum instead of ``fma``, or back; factors the other way round."""

from __future__ import annotations

from collections.abc import Callable

from mapper.ast_model.builders import call
from mapper.ast_model.nodes import Call, MapId, Node, Program
from mapper.schedules.find import find_loop
from mapper.schedules.step import Step, refusal, step
from mapper.schedules.tree import rebuilt


def contract(program: Program, name: MapId) -> Step:
    """``fma(u, v, w)`` in this map or reduce as ``w + u * v``.

    OpenCL C lets compilers make one instruction of it; ``fma`` is a call on some.
    """
    return _changed(
        "contract", program, name, _product_and_sum, "no fma stands in it", "fma(u, v, w)"
    )


def fuse_products(program: Program, name: MapId) -> Step:
    """``w + u * v`` in this map or reduce as ``fma(u, v, w)``."""
    return _changed(
        "fuse_products",
        program,
        name,
        _fma,
        "no sum of a product stands in it",
        "add(w, mul(u, v))",
    )


def commute(program: Program, name: MapId) -> Step:
    """The factors of every product and ``fma`` in this map or reduce the other way round."""
    return _changed("commute", program, name, _commuted, "no product stands in it", "fma(u, v, w)")


def _commuted(node: Node) -> Node | None:
    match node:
        case Call("fma", (left, right, term)):
            return call("fma", right, left, term)
        case Call("mul", (left, right)):
            return call("mul", right, left)
        case _:
            return None


def _changed(
    primitive: str,
    program: Program,
    name: MapId,
    change: Callable[[Node], Node | None],
    why: str,
    needed: str,
) -> Step:
    found = find_loop(primitive, program, name)
    if {f.name for f in program.functions} & {"fma", "add", "mul"}:
        raise refusal(primitive, name, "the program has a function of its own of that name")

    def everywhere(node: Node) -> Node:
        node = rebuilt(node, everywhere)
        new = change(node)
        return node if new is None else new

    changed = everywhere(found.node)
    if changed == found.node:
        raise refusal(primitive, name, why, "", needed)
    return step(primitive, name, program, found.site.replaced(changed))


def _product_and_sum(node: Node) -> Node | None:
    match node:
        case Call("fma", (left, right, term)):
            return call("add", term, call("mul", left, right))
        case _:
            return None


def _fma(node: Node) -> Node | None:
    match node:
        case Call("add", (term, Call("mul", (left, right)))) | Call(
            "add", (Call("mul", (left, right)), term)
        ):
            return call("fma", left, right, term)
        case _:
            return None
