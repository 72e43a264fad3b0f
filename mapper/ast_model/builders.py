"""Short hands to build programs in Python, and the N-dimensional macros of the papers.

``slide_2d``, ``pad_2d`` and their kin expand to the one-dimensional primitives, as in
"Auto-Generation of Specialized Direct Convolutions for Mobile GPUs" (GPGPU'20), section
3.1.1. Maps made here without an id change only the layout and never become loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from mapper.ast_model.index_expr import ExprLike, as_expr, const
from mapper.ast_model.nodes import (
    AsScalar,
    AsVector,
    Call,
    Fill,
    Get,
    Join,
    Let,
    Map,
    MapId,
    Node,
    OrderKind,
    Pad,
    Reduce,
    Ref,
    Reorder,
    Slide,
    Split,
    To,
    Transpose,
    Zip,
)
from mapper.ast_model.types import Memory

_MADE_UP = ("acc", "t", "v", "x")


def said_name(name: str) -> str:
    """What a name in a program says: without its number, and nothing if a builder made it up."""
    stem = name.rstrip("0123456789").rstrip("_")
    return "" if stem in _MADE_UP else stem


class Builder:
    """Builds nodes with parameter names (and layout map ids) that are unique in a program."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def name(self, stem: str) -> str:
        """A fresh name."""
        return f"{stem}{next(self._numbers)}"

    def map(self, map_id: MapId, function: Callable[[Ref], Node], argument: Node) -> Map:
        """A map that may become a loop, under this id."""
        parameter = self.name("x")
        return Map(map_id, parameter, function(Ref(parameter)), argument)

    def layout_map(self, function: Callable[[Ref], Node], argument: Node, depth: int = 1) -> Node:
        """``function`` applied ``depth`` dimensions down; it must only change the layout."""
        if depth == 0:
            raise ValueError("depth is at least 1")
        parameter = self.name("v")
        inner = (
            function(Ref(parameter))
            if depth == 1
            else self.layout_map(function, Ref(parameter), depth - 1)
        )
        return Map(f"layout_{parameter}", parameter, inner, argument)

    def at_depth(self, function: Callable[[Node], Node], argument: Node, depth: int) -> Node:
        """``function`` at ``depth`` dimensions down, 0 being the argument itself."""
        return function(argument) if depth == 0 else self.layout_map(function, argument, depth)

    def nest(self, ids: Sequence[MapId], function: Callable[[Ref], Node], argument: Node) -> Node:
        """Perfectly nested maps, outermost id first."""
        head, *rest = ids
        if not rest:
            return self.map(head, function, argument)
        return self.map(head, lambda x: self.nest(rest, function, x), argument)

    def reduce(
        self,
        function: Callable[[Ref, Ref], Node],
        initial: Node,
        argument: Node,
        unroll: ExprLike = 0,
        prefetch: ExprLike = 0,
        step: str = "x",
    ) -> Reduce:
        """A sequential fold; the result has length 1. ``step`` is what an element is called."""
        accumulator, parameter = self.name("acc"), self.name(step)
        body = function(Ref(accumulator), Ref(parameter))
        options = (as_expr(unroll), as_expr(prefetch))
        return Reduce(accumulator, parameter, body, initial, argument, *options)

    def let(self, value: Node, function: Callable[[Ref], Node], name: str = "t") -> Let:
        """``function`` of a value that is computed once; ``name`` is what it is called."""
        name = self.name(name)
        return Let(name, value, function(Ref(name)))

    def slide_2d(
        self,
        sizes: tuple[ExprLike, ExprLike],
        steps: tuple[ExprLike, ExprLike],
        argument: Node,
        *,
        strict: bool = False,
    ) -> Node:
        """[[T]w]h as windows [[[[T]s1]s0]nw]nh."""
        rows = self.layout_map(
            lambda row: Slide(as_expr(sizes[1]), as_expr(steps[1]), row, strict), argument
        )
        return self.layout_map(Transpose, Slide(as_expr(sizes[0]), as_expr(steps[0]), rows, strict))

    def pad_2d(
        self,
        rows: tuple[ExprLike, ExprLike],
        columns: tuple[ExprLike, ExprLike],
        argument: Node,
        value: float = 0.0,
    ) -> Node:
        """A constant border around the two outer dimensions; negative amounts crop."""
        inner = self.layout_map(
            lambda row: Pad(as_expr(columns[0]), as_expr(columns[1]), value, row), argument
        )
        return Pad(as_expr(rows[0]), as_expr(rows[1]), value, inner)

    def split_at(self, size: ExprLike, argument: Node, depth: int) -> Node:
        """Split the dimension at ``depth`` into (outer, ``size``)."""
        return self.at_depth(lambda a: Split(as_expr(size), a), argument, depth)

    def join_at(self, argument: Node, depth: int) -> Node:
        """Join the dimensions at ``depth`` and ``depth + 1``."""
        return self.at_depth(Join, argument, depth)

    def permute(self, order: Sequence[int], argument: Node) -> Node:
        """Dimension k of the result is dimension ``order[k]`` of the argument."""
        current = list(range(len(order)))
        result = argument
        for target, wanted in enumerate(order):
            position = current.index(wanted)
            while position > target:
                result = self.at_depth(Transpose, result, position - 1)
                current[position - 1], current[position] = current[position], current[position - 1]
                position -= 1
        return result

    def zip_nd(self, depth: int, *arguments: Node) -> Node:
        """Arrays of ``depth`` dimensions as one array of tuples of that many dimensions."""
        zipped: Node = Zip(arguments)
        if depth == 1:
            return zipped
        size = len(arguments)
        return self.layout_map(
            lambda t: self.zip_nd(depth - 1, *(Get(k, t) for k in range(size))), zipped
        )


def call(function: str, *arguments: Node) -> Call:
    """A user function applied."""
    return Call(function, arguments)


def identity(argument: Node) -> Call:
    """The user function that only writes its argument."""
    return Call("id", (argument,))


def fill(value: float, *shape: ExprLike) -> Fill:
    """An array of one constant, outermost length first."""
    return Fill(value, tuple(as_expr(n) for n in shape))


def get(argument: Node, index: int) -> Get:
    """A tuple's component."""
    return Get(index, argument)


def as_vector(width: ExprLike, argument: Node) -> AsVector:
    """Scalars as vectors."""
    return AsVector(as_expr(width), argument)


def as_scalar(argument: Node) -> AsScalar:
    """Vectors as scalars."""
    return AsScalar(argument)


def reorder_stride(stride: ExprLike, argument: Node) -> Reorder:
    """Neighbours of the result stand ``stride`` apart in the argument."""
    return Reorder(OrderKind.STRIDE, as_expr(stride), argument)


def reverse(argument: Node) -> Reorder:
    """Last element first."""
    return Reorder(OrderKind.REVERSE, const(1), argument)


def to_private(argument: Node, spread: int = 0) -> To:
    """Write to registers; ``spread`` leading dimensions may be spread over work-items."""
    return To(Memory.PRIVATE, argument, spread)


def to_local(argument: Node) -> To:
    """Write to local memory."""
    return To(Memory.LOCAL, argument)


def to_global(argument: Node) -> To:
    """Write to global memory."""
    return To(Memory.GLOBAL, argument)
