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
    Zip,
    children,
)
from mapper.ast_model.types import ArrayType, Type
from mapper.schedules.facts import facts_of, type_of


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
    return facts_of(node).is_view


def free_names(node: Node) -> frozenset[str]:
    """Names that the node uses and does not bind."""
    return facts_of(node).free


def uses(node: Node, name: str) -> int:
    """How often a free name stands in a node of unique names."""
    if isinstance(node, Ref):
        return int(node.name == name)
    if name not in facts_of(node).free:
        return 0
    return sum(uses(child, name) for _, child in children(node))


def substituted(node: Node, values: Mapping[str, Node]) -> Node:
    """Free names replaced; binders in a program of unique names capture nothing."""
    if isinstance(node, Ref):
        return values.get(node.name, node)
    if facts_of(node).free.isdisjoint(values):
        return node
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
    if name not in facts_of(body).free:
        return found
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
        env: dict[str, Type] = {i.name: i.type for i in self.program.inputs}
        for kernel in self.program.kernels:
            if kernel.name == self.kernel.name:
                break
            env[kernel.name] = type_of(kernel.body, env, self.program)
        for parent, field in self.path:
            if field == "body":
                env |= bound_types(parent, env, self.program)
        return env


def bound_types(node: Node, env: dict[str, Type], program: Program) -> dict[str, Type]:
    """The types of the names that a node binds in its body."""

    def element(argument: Node) -> Type:
        found = type_of(argument, env, program)
        assert isinstance(found, ArrayType)
        return found.element

    match node:
        case Map():
            return {node.parameter: element(node.argument)}
        case Reduce():
            start = type_of(node.initial, env, program)
            return {node.accumulator: start, node.parameter: element(node.argument)}
        case Let():
            return {node.name: type_of(node.value, env, program)}
        case _:
            return {}


_Way = tuple[Node, str, "_Way"] | None
"""The last step of a path, and the path before."""


def sites(
    program: Program, wanted: Callable[[Node], bool], *, views: bool = True
) -> Iterator[Site]:
    """Every node of this kind, kernels in order, outer nodes first; without ``views`` none that
    only changes the layout, nor what is in it."""
    for kernel in program.kernels:
        stack: list[tuple[_Way, Node]] = [(None, kernel.body)]
        while stack:
            way, node = stack.pop()
            if not views and is_view(node):
                continue
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
