"""Arrays of the IR with a name for every dimension, so that layouts are said in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from mapper.ast_model.builders import Builder, fill
from mapper.ast_model.index_expr import ExprLike, as_expr
from mapper.ast_model.nodes import Join, Node, Split


@dataclass(frozen=True, slots=True)
class Labelled:
    """A node whose outermost dimensions are called ``labels``, outermost first.

    Every method returns the array in another layout; nothing is computed or copied.
    """

    build: Builder
    node: Node
    labels: tuple[str, ...]

    def split(self, label: str, size: ExprLike, outer: str, inner: str) -> Labelled:
        """A dimension as ``outer`` times ``inner`` of this size."""
        depth = self.labels.index(label)
        node = self.build.split_at(size, self.node, depth)
        return replace(
            self,
            node=node,
            labels=(*self.labels[:depth], outer, inner, *self.labels[depth + 1 :]),
        )

    def order(self, *labels: str) -> Labelled:
        """The named dimensions outermost, in this order; the others follow in theirs."""
        wanted = (*labels, *(label for label in self.labels if label not in labels))
        if wanted == self.labels:
            return self
        order = tuple(self.labels.index(label) for label in wanted)
        return replace(self, node=self.build.permute(order, self.node), labels=wanted)

    def merge(self, outer: str, inner: str, label: str) -> Labelled:
        """Two neighbouring dimensions as one."""
        depth = self.labels.index(outer)
        if self.labels[depth + 1] != inner:
            raise ValueError(f"{outer} and {inner} are not neighbours in {self.labels}")
        node = self.build.join_at(self.node, depth)
        return replace(
            self, node=node, labels=(*self.labels[:depth], label, *self.labels[depth + 2 :])
        )

    def at(self, label: str, change: Callable[[Node], Node], labels: tuple[str, ...]) -> Labelled:
        """``change`` applied to the dimensions from ``label`` on, which are ``labels`` then."""
        depth = self.labels.index(label)
        node = self.build.at_depth(change, self.node, depth)
        return replace(self, node=node, labels=(*self.labels[:depth], *labels))

    def repeated(self, before: str | None, label: str, length: ExprLike) -> Labelled:
        """A new dimension along which the array repeats, in front of ``before`` (or last)."""
        depth = len(self.labels) if before is None else self.labels.index(before)

        def repeat(inner: Node) -> Node:
            return self.build.layout_map(lambda _: inner, fill(0.0, as_expr(length)))

        node = self.build.at_depth(repeat, self.node, depth)
        return replace(self, node=node, labels=(*self.labels[:depth], label, *self.labels[depth:]))

    def without(self, label: str) -> Labelled:
        """An outermost dimension of length 1 left out."""
        if self.labels[0] != label:
            raise ValueError(f"{label} is not outermost in {self.labels}")
        return replace(self, node=Join(self.node), labels=self.labels[1:])

    def within(self, label: str, length: ExprLike) -> Labelled:
        """All of the array as the one element of an outer dimension ``label``."""
        return replace(self, node=Split(as_expr(length), self.node), labels=(label, *self.labels))
