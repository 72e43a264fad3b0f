"""Views made longer at their end, by elements that nobody looks at.

What is added to a map that is split into tiles it does not fill is computed and dropped. So it may
be anything; it is best taken from a longer border of the array below, where there is one guard.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mapper.ast_model.index_expr import Expr
from mapper.ast_model.nodes import NO, Join, Map, Node, Pad, Ref, Slide, Split, Transpose
from mapper.schedules.nests import at_depth
from mapper.schedules.tree import is_view, uses
from mapper.schedules.unique import Names


@dataclass(frozen=True, slots=True)
class _Demand:
    """What a view of a name needs: the name's dimension at ``depth`` longer by ``extra``."""

    depth: int
    extra: Expr


def grown(names: Names, node: Node, depth: int, extra: Expr) -> Node:
    """The view with its dimension at ``depth`` longer by ``extra``; its scalars are no tuples."""
    return _Grow(names).node(node, depth, extra, "")[0]


@dataclass(frozen=True, slots=True)
class _Grow:
    names: Names

    def node(self, node: Node, depth: int, extra: Expr, bound: str) -> tuple[Node, _Demand | None]:
        """The longer view; or the same one, and what it demands of the name ``bound``."""
        match node:
            case Ref(name) if name == bound:
                return node, _Demand(depth, extra)
            case Map() if is_view(node):
                return self.map(node, depth, extra, bound)
            case Transpose():
                return self.inside(node, 1 - depth if depth < 2 else depth, extra, bound)
            case Pad() if depth == 0:
                return replace(node, right=node.right + extra), None
            case Pad():
                return self.inside(node, depth, extra, bound)
            case Slide(_, step) if depth == 0 and not node.strict:
                return self.inside(node, 0, extra * step, bound)
            case Split(size) if depth == 0:
                return self.inside(node, 0, extra * size, bound)
            case Slide() | Split() if depth > 1:
                return self.inside(node, depth - 1, extra, bound)
            case Join() if depth > 0:
                return self.inside(node, depth + 1, extra, bound)
            case _:
                longer = at_depth(self.names, lambda v: Pad(NO, extra, 0.0, v), node, depth)
                return longer, None

    def inside(
        self, node: Transpose | Pad | Slide | Split | Join, depth: int, extra: Expr, bound: str
    ) -> tuple[Node, _Demand | None]:
        argument, demand = self.node(node.argument, depth, extra, bound)
        return replace(node, argument=argument), demand

    def map(self, node: Map, depth: int, extra: Expr, bound: str) -> tuple[Node, _Demand | None]:
        if depth > 0 and uses(node.body, node.parameter) != 1:
            return at_depth(self.names, lambda v: Pad(NO, extra, 0.0, v), node, depth), None
        if depth > 0:
            body, demand = self.node(node.body, depth - 1, extra, node.parameter)
            if demand is None:
                return replace(node, body=body), None
            depth, extra = demand.depth + 1, demand.extra
        argument, demand = self.node(node.argument, depth, extra, bound)
        return replace(node, argument=argument), demand
