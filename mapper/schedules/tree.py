"""Walking and rebuilding trees of nodes: children by field, names, substitution, sites."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from mapper.ast_model.nodes import (
    Call,
    Get,
    Kernel,
    Layout,
    Let,
    Map,
    MapId,
    Node,
    Program,
    Reduce,
    Ref,
    To,
    Zip,
    children,
)
from mapper.ast_model.type_check import infer_part
from mapper.ast_model.type_memory import TypeMemory
from mapper.ast_model.types import ArrayType, Type


def with_child(node: Node, field: str, child: Node) -> Node:
    """The node with the child of this field (``arguments/0`` for tuples) replaced."""
    if field.startswith("arguments/"):
        assert isinstance(node, Call | Zip)
        position = int(field.removeprefix("arguments/"))
        before, after = node.arguments[:position], node.arguments[position + 1 :]
        return replace(node, arguments=(*before, child, *after))
    return replace(node, **{field: child})


def rebuilt(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node with every child changed; the node itself if none was."""
    changed = [
        (field, new) for field, child in children(node) if (new := change(child)) is not child
    ]
    for field, new in changed:
        node = with_child(node, field, new)
    return node


def is_view(node: Node) -> bool:
    """True if nothing in it computes or writes: it only changes the layout."""
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, Call | Reduce | To):
            return False
        # Bodies first: what computes does so there. No fields by name: this is asked very often.
        if isinstance(current, Map):
            stack += (current.argument, current.body)
        elif isinstance(current, Layout):
            stack.append(current.argument)
        elif not isinstance(current, Ref):
            stack += [child for _, child in reversed(list(children(current)))]
    return True


class ViewMemory:
    """:func:`is_view` of many nodes of one tree, each looked at once."""

    def __init__(self) -> None:
        # The node is kept beside the answer so that its identity stays taken.
        self._known: dict[int, tuple[Node, bool]] = {}

    def is_view(self, node: Node) -> bool:
        """True if nothing in it computes or writes."""
        known = self._known.get(id(node))
        if known is not None:
            return known[1]
        found = not isinstance(node, Call | Reduce | To)
        if found:
            for _, child in children(node):
                if not self.is_view(child):
                    found = False
                    break
        self._known[id(node)] = (node, found)
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


def free_names(node: Node) -> frozenset[str]:
    """Names that the node uses and does not bind."""
    if isinstance(node, Ref):
        return frozenset((node.name,))
    found: set[str] = set()
    for field, child in children(node):
        inner = free_names(child)
        found |= inner - set(bound_names(node)) if field == "body" else inner
    return frozenset(found)


def uses(node: Node, name: str) -> int:
    """How often a free name stands in a node of unique names."""
    if isinstance(node, Ref):
        return int(node.name == name)
    return sum(uses(child, name) for _, child in children(node))


def substituted(node: Node, values: Mapping[str, Node]) -> Node:
    """Free names replaced; binders in a program of unique names capture nothing."""
    if isinstance(node, Ref):
        return values.get(node.name, node)
    return rebuilt(node, lambda child: substituted(child, values))


def replaced(node: Node, old: Node, new: Node) -> Node:
    """The node with another in place of every one that equals ``old``."""
    if node == old:
        return new
    return rebuilt(node, lambda child: replaced(child, old, new))


def looked_at(body: Node, name: str) -> frozenset[int] | None:
    """The components of a tuple that a body looks at; None if it looks at the tuple itself."""
    if body == Ref(name):
        return None
    if isinstance(body, Get) and body.argument == Ref(name):
        return frozenset((body.index,))
    found: frozenset[int] = frozenset()
    for _, child in children(body):
        inner = looked_at(child, name)
        if inner is None:
            return None
        found |= inner
    return found


def nodes_of(node: Node) -> Iterator[Node]:
    """The node and all in it, outer ones first."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack += [child for _, child in reversed(list(children(current)))]


def through_layout(node: Node) -> tuple[Callable[[Node], Node], Node]:
    """What stands under changes of layout, and what puts these around another node.

    A map that only changes the layout counts where its argument computes.
    """
    if isinstance(node, Layout) or (
        isinstance(node, Map) and is_view(node.body) and not is_view(node.argument)
    ):
        around, inner = through_layout(node.argument)
        return lambda new: replace(node, argument=around(new)), inner
    return lambda new: new, node


@dataclass(frozen=True, slots=True)
class Site:
    """A node in a program: its kernel, and its ancestors with the fields that lead down."""

    program: Program
    kernel: Kernel
    path: tuple[tuple[Node, str], ...]
    node: Node

    def replaced(self, node: Node) -> Program:
        """The program with another node here."""
        for parent, field in reversed(self.path):
            node = with_child(parent, field, node)
        kernels = tuple(
            replace(k, body=node) if k.name == self.kernel.name else k for k in self.program.kernels
        )
        return replace(self.program, kernels=kernels)

    def up(self, levels: int = 1) -> Site:
        """The site of an ancestor."""
        rest = self.path[: len(self.path) - levels]
        return Site(self.program, self.kernel, rest, self.path[len(rest)][0])

    def down(self, field: str) -> Site:
        """The site of a child."""
        child = dict(children(self.node))[field]
        return Site(self.program, self.kernel, (*self.path, (self.node, field)), child)

    def types(self) -> dict[str, Type]:
        """The types of the names in scope here."""
        memory = TypeMemory()
        env: dict[str, Type] = {i.name: i.type for i in self.program.inputs}
        for kernel in self.program.kernels:
            if kernel.name == self.kernel.name:
                break
            env[kernel.name] = infer_part(kernel.body, env, self.program, memory)
        for parent, field in self.path:
            if field == "body":
                env |= bound_types(parent, env, self.program, memory)
        return env


def bound_types(
    node: Node, env: Mapping[str, Type], program: Program, memory: TypeMemory | None = None
) -> dict[str, Type]:
    """The types of the names that a node binds in its body."""

    def element(argument: Node) -> Type:
        found = infer_part(argument, env, program, memory)
        assert isinstance(found, ArrayType)
        return found.element

    match node:
        case Map():
            return {node.parameter: element(node.argument)}
        case Reduce():
            start = infer_part(node.initial, env, program, memory)
            return {node.accumulator: start, node.parameter: element(node.argument)}
        case Let():
            return {node.name: infer_part(node.value, env, program, memory)}
        case _:
            return {}


_Way = tuple[Node, str, "_Way"] | None
"""The last step of a path, and the path before."""


def sites(program: Program, wanted: Callable[[Node], bool]) -> Iterator[Site]:
    """Every node of this kind, kernels in order, outer nodes first."""
    for kernel in program.kernels:
        stack: list[tuple[_Way, Node]] = [(None, kernel.body)]
        while stack:
            way, node = stack.pop()
            if wanted(node):
                yield Site(program, kernel, _path(way), node)
            inner = [((node, field, way), child) for field, child in children(node)]
            stack += reversed(inner)


def _path(way: _Way) -> tuple[tuple[Node, str], ...]:
    steps: list[tuple[Node, str]] = []
    while way is not None:
        node, field, way = way
        steps.append((node, field))
    return tuple(reversed(steps))


def all_nodes(program: Program) -> Iterator[Node]:
    """Every node, kernels in order, outer nodes first."""
    for kernel in program.kernels:
        yield from nodes_of(kernel.body)


def concrete_maps(program: Program) -> tuple[Map, ...]:
    """The maps that compute or write, outer ones first."""
    return tuple(m for m in all_nodes(program) if isinstance(m, Map) and not is_view(m.body))


def same_id(left: MapId, right: MapId) -> bool:
    """True for one id, be it a number or its text."""
    return str(left) == str(right)
