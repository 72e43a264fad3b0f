"""What holds of a node wherever it stands, found once: steps share most of their programs' nodes.

Nodes never change, so facts are kept by a node's identity, with the node, so that the identity
stays taken. What is kept is bounded and of one thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from mapper.ast_model.bounds import expression_is_too_large
from mapper.ast_model.index_expr import Expr
from mapper.ast_model.nodes import (
    AsVector,
    Call,
    Fill,
    Get,
    Layout,
    Let,
    Map,
    Node,
    Pad,
    Program,
    Reduce,
    Ref,
    Reorder,
    Slide,
    Split,
    To,
    children,
)
from mapper.ast_model.type_check import check_program, infer_part
from mapper.ast_model.type_memory import TypeMemory
from mapper.ast_model.types import Type

MOST_NODES = 50_000
#: Names in all sets that are kept: a set of a node holds all that is bound below it.
MOST_NAMES = 1_000_000
_NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Facts:
    """Of a node and all in it; what stands in several places counts in each.

    ``is_view``: nothing computes or writes. ``free``: names that it uses and does not bind.
    ``bound``: names that are bound in it, ``bindings`` times in all. ``computing``: ids of maps
    that compute, of which there are ``computing_maps``. ``layouts``: ids of those that only lay
    out, of which there are ``layout_maps``.
    ``is_wordy``: an integer expression is larger than one may be.
    """

    node: Node
    is_view: bool
    free: frozenset[str]
    bound: frozenset[str]
    bindings: int
    computing: frozenset[str]
    computing_maps: int
    layouts: frozenset[str]
    layout_maps: int
    size: int
    depth: int
    is_wordy: bool


class _Known(threading.local):
    def __init__(self) -> None:
        self.facts: dict[int, Facts] = {}
        self.names = 0
        #: Nodes that simplification leaves as they are.
        self.simple: dict[int, Node] = {}
        self.types: tuple[object, TypeMemory] = (None, TypeMemory())
        #: Of the last two programs that were asked about: a step's before is the last one's after.
        self.obligations: list[tuple[Program, dict[str, None]]] = []


_KNOWN = _Known()


def facts_of(node: Node) -> Facts:
    """The facts of a node."""
    known = _KNOWN.facts.get(id(node))
    if known is not None:
        return known
    if len(_KNOWN.facts) > MOST_NODES or _KNOWN.names > MOST_NAMES:
        _KNOWN.facts.clear()
        _KNOWN.names = 0
    return _found(node)


def _found(node: Node) -> Facts:
    known = _KNOWN.facts.get(id(node))
    if known is not None:
        return known
    names = bound_names(node)
    inner: list[Facts] = []
    if isinstance(node, Ref):
        made = Facts(
            node, True, frozenset((node.name,)), _NOTHING, 0, _NOTHING, 0, _NOTHING, 0, 1, 1, False
        )
    elif isinstance(node, Layout | Get):
        # Most nodes are: it is what its argument is, but for its size.
        its = _found(node.argument)
        made = Facts(
            node,
            its.is_view,
            its.free,
            its.bound,
            its.bindings,
            its.computing,
            its.computing_maps,
            its.layouts,
            its.layout_maps,
            its.size + 1,
            its.depth + 1,
            its.is_wordy or any(map(expression_is_too_large, _sizes(node))),
        )
    else:
        parts = [(field, _found(child)) for field, child in children(node)]
        inner = [facts for _, facts in parts]
        is_view = not isinstance(node, Call | Reduce | To) and all(f.is_view for f in inner)
        free = [f.free.difference(names) if field == "body" and names else f.free
                for field, f in parts]  # fmt: skip
        computing = union(f.computing for f in inner)
        layouts = union(f.layouts for f in inner)
        layout_maps = sum(f.layout_maps for f in inner)
        computing_maps = sum(f.computing_maps for f in inner)
        if isinstance(node, Map):
            body = next(facts for field, facts in parts if field == "body")
            if body.is_view:
                layouts, layout_maps = layouts | {str(node.id)}, layout_maps + 1
            else:
                computing, computing_maps = computing | {str(node.id)}, computing_maps + 1
        bound = union(f.bound for f in inner)
        made = Facts(
            node,
            is_view,
            union(free),
            bound.union(names) if names else bound,
            len(names) + sum(f.bindings for f in inner),
            computing,
            computing_maps,
            layouts,
            layout_maps,
            1 + sum(f.size for f in inner),
            1 + max((f.depth for f in inner), default=0),
            any(f.is_wordy for f in inner) or any(map(expression_is_too_large, _sizes(node))),
        )
    _KNOWN.facts[id(node)] = made
    # A set that a child has as well takes nothing.
    if names or len(inner) > 1:
        _KNOWN.names += len(made.bound) + len(made.computing) + len(made.layouts)
    return made


def _sizes(node: Node) -> tuple[Expr, ...]:
    """The integer expressions of a node itself."""
    match node:
        case Fill():
            return node.shape
        case Split():
            return (node.size,)
        case Slide():
            return node.size, node.step
        case Pad():
            return node.left, node.right
        case Reorder():
            return (node.amount,)
        case Reduce():
            return node.unroll, node.prefetch
        case AsVector():
            return (node.width,)
        case _:
            return ()


def union(parts: Iterable[frozenset[str]]) -> frozenset[str]:
    """All of them; one of them itself where it holds the others."""
    found = _NOTHING
    for part in parts:
        if not part <= found:
            found = part if found <= part else found | part
    return found


def bound_names(node: Node) -> tuple[str, ...]:
    """The names that a node binds in its body."""
    match node:
        case Map():
            return (node.parameter,)
        case Reduce():
            return (node.accumulator, node.parameter)
        case Let():
            return (node.name,)
        case _:
            return ()


def simple_nodes() -> dict[int, Node]:
    """Nodes that simplification leaves as they are, by identity; for it to look up and to add."""
    if len(_KNOWN.simple) > MOST_NODES:
        _KNOWN.simple.clear()
    return _KNOWN.simple


def types_in(program: Program) -> TypeMemory:
    """Types that were inferred in programs of these sizes, functions and inputs.

    A type that was once right stays right: steps add parameters, and change none.
    """
    same = (program.sizes, program.functions, program.inputs)
    key, memory = _KNOWN.types
    if key != same or len(memory) > MOST_NODES:
        memory = TypeMemory()
        _KNOWN.types = same, memory
    return memory


def type_of(node: Node, env: dict[str, Type], program: Program) -> Type:
    """The type of a part of a program that is within the bounds."""
    return infer_part(node, env, program, types_in(program))


def obligations_in(program: Program) -> dict[str, None]:
    """What a program's types demand of sizes and parameters, each once, in order."""
    for known, found in _KNOWN.obligations:
        if known is program:
            return found
    found = dict.fromkeys(str(o) for o in check_program(program).obligations)
    _KNOWN.obligations = [*_KNOWN.obligations[-1:], (program, found)]
    return found
