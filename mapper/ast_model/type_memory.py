"""Types that were inferred once, so that parts of one program need not be inferred again.

Elaboration asks for the type of a node, then for that of the node inside it, and so on: each
time all of what stands inside would be inferred anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mapper.ast_model.nodes import Let, Map, Node, Reduce, Ref, children
from mapper.ast_model.types import Type

_Key = tuple[int, ...]


class TypeMemory:
    """Types of nodes of one program, by the types of the names that they use.

    Nodes and types are told apart by identity, which costs nothing to compare; equal types
    that are different objects are merely inferred twice. It is meant to live as long as one
    walk over the program.
    """

    def __init__(self) -> None:
        # What the keys are made of is kept with the answer, so that its identity stays taken.
        self._known: dict[_Key, tuple[Type, tuple[object, ...]]] = {}
        self._names: dict[int, tuple[Node, tuple[str, ...]]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def recall(self, node: Node, env: Mapping[str, Type | None]) -> Type | None:
        """The type of the node if it was inferred before where its names had these types."""
        known = self._known.get((id(node), *(id(env.get(n)) for n in self.free_names(node))))
        return None if known is None else known[0]

    def keep(self, node: Node, env: Mapping[str, Type | None], type_: Type) -> None:
        """Remember a type for :meth:`recall`."""
        used = tuple(env.get(n) for n in self.free_names(node))
        self._known[id(node), *map(id, used)] = (type_, (node, *used))

    def free_names(self, node: Node) -> tuple[str, ...]:
        """Names that the node uses and does not bind, each once, in order of first use."""
        known = self._names.get(id(node))
        if known is not None:
            return known[1]
        stack = [node]
        while stack:
            current = stack[-1]
            if id(current) not in self._names:
                parts = list(children(current))
                unknown = [part for _, part in parts if id(part) not in self._names]
                if unknown:
                    stack += reversed(unknown)
                    continue
                names = tuple(dict.fromkeys(self._uses(current, parts)))
                self._names[id(current)] = (current, names)
            stack.pop()
        return self._names[id(node)][1]

    def _uses(self, node: Node, parts: list[tuple[str, Node]]) -> Iterator[str]:
        """As :meth:`free_names`, where those of the parts are known."""
        if isinstance(node, Ref):
            yield node.name
        for field, part in parts:
            bound: tuple[str, ...] = ()
            if field == "body":
                match node:
                    case Map():
                        bound = (node.parameter,)
                    case Reduce():
                        bound = (node.accumulator, node.parameter)
                    case Let():
                        bound = (node.name,)
                    case _:
                        pass
            yield from (name for name in self._names[id(part)][1] if name not in bound)
