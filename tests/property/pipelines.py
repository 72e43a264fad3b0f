"""Random programs with producers and consumers: the shapes that race if a rule is missing.

Nests of maps in which stages hand buffers of any memory to one another through views,
reduces with accumulators of any memory, lets, ragged sizes, several top-level nests.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from mapper.ast_model.builders import (
    Builder,
    as_scalar,
    as_vector,
    call,
    fill,
    get,
    identity,
    reorder_stride,
    reverse,
)
from mapper.ast_model.index_expr import as_expr
from mapper.ast_model.nodes import (
    Input,
    Join,
    Kernel,
    Let,
    Literal,
    Node,
    Pad,
    Program,
    Ref,
    Slide,
    Split,
    To,
    Transpose,
)
from mapper.ast_model.types import FLOAT, Memory, array

SIZES = (1, 2, 3, 4, 6, 8)
MAX_ELEMENTS = 2000
Dims = tuple[int, ...]


@dataclass
class _Maker:
    draw: st.DrawFn
    build: Builder
    maps: int = 0

    def pick(self, *choices: object) -> object:
        return self.draw(st.sampled_from(choices))

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) < percent

    def map_id(self) -> str:
        self.maps += 1
        return f"m{self.maps}"

    def compute(self, item: Node) -> Node:
        kind = self.pick("id", "twice", "plus", "stored")
        if kind == "id":
            return identity(item)
        if kind == "stored":
            memory = self.pick(*Memory)
            assert isinstance(memory, Memory)
            return self.build.let(To(memory, identity(item)), lambda q: call("add", q, item))
        return call("add", item, item if kind == "twice" else Literal(1.5))

    def nest(self, node: Node, rank: int) -> Node:
        """A map for each dimension, computing something for every element."""
        return self.build.nest([self.map_id() for _ in range(rank)], self.compute, node)

    def view(self, node: Node, dims: Dims) -> tuple[Node, Dims]:
        """A layout change."""
        depth = self.draw(st.integers(0, len(dims) - 1))
        length = dims[depth]
        kinds = ["reverse", "stride", "split", "slide", "pad", "none"]
        if depth + 1 < len(dims):
            kinds += ["transpose", "transpose", "transpose", "join"]
        kind = self.pick(*kinds)
        at = self.build.at_depth
        before, after = dims[:depth], dims[depth + 1 :]
        divisors = [d for d in range(1, length + 1) if length % d == 0]
        match kind:
            case "reverse":
                return at(reverse, node, depth), dims
            case "stride":
                stride = self.pick(*divisors)
                assert isinstance(stride, int)
                return at(lambda a: reorder_stride(stride, a), node, depth), dims
            case "split" if len(dims) < 4:
                size = self.pick(*divisors)
                assert isinstance(size, int)
                return (
                    at(lambda a: Split(as_expr(size), a), node, depth),
                    (*before, length // size, size, *after),
                )
            case "slide" if len(dims) < 4 and length > 2:
                return (
                    at(lambda a: Slide(as_expr(2), as_expr(1), a, False), node, depth),
                    (*before, length - 1, 2, *after),
                )
            case "pad":
                left = self.draw(st.integers(-1, 1))
                right = self.draw(st.integers(0, 1))
                if length + left + right < 1:
                    return node, dims
                return (
                    at(lambda a: Pad(as_expr(left), as_expr(right), 0.5, a), node, depth),
                    (*before, length + left + right, *after),
                )
            case "transpose":
                return (
                    at(Transpose, node, depth),
                    (*before, dims[depth + 1], length, *dims[depth + 2 :]),
                )
            case "join":
                return at(Join, node, depth), (
                    *before,
                    length * dims[depth + 1],
                    *dims[depth + 2 :],
                )
            case _:
                return node, dims

    def views(self, node: Node, dims: Dims) -> tuple[Node, Dims]:
        for _ in range(self.draw(st.integers(0, 2))):
            changed, new = self.view(node, dims)
            total = 1
            for n in new:
                total *= n
            if total <= MAX_ELEMENTS:
                node, dims = changed, new
        return node, dims

    def writing(self, node: Node, dims: Dims, depth: int) -> tuple[Node, Dims]:
        """An expression that writes an array computed from ``node``."""
        if depth > 0 and len(dims) > 1 and self.chance(60):
            result: list[Dims] = []

            def body(item: Ref) -> Node:
                inner, inner_dims = self.writing(item, dims[1:], depth - 1)
                result.append(inner_dims)
                return inner

            mapped = self.build.map(self.map_id(), body, node)
            return mapped, (dims[0], *result[0])
        written, dims = self.stage(node, dims)
        if depth > 0 and self.maps < 7 and self.chance(60):
            memory = self.pick(Memory.PRIVATE, Memory.LOCAL, Memory.LOCAL, Memory.GLOBAL)
            assert isinstance(memory, Memory)
            stored = To(memory, written)
            if self.chance(50):
                name = self.build.name("buf")
                viewed, dims = self.views(Ref(name), dims)
                rest, dims = self.writing(viewed, dims, depth - 1)
                return Let(name, stored, rest), dims
            viewed, dims = self.views(stored, dims)
            return self.writing(viewed, dims, depth - 1)
        return written, dims

    def stage(self, node: Node, dims: Dims) -> tuple[Node, Dims]:
        last = dims[len(dims) - 1]
        kind = self.pick("nest", "nest", "sum", "array sum", "vectors")
        if kind == "sum" and len(dims) > 1:
            return self.scalar_sum(node, dims), (*dims[:-1], 1)
        if kind == "array sum" and len(dims) > 1:
            return self.array_sum(node, dims), (1, *dims[1:])
        widths = [w for w in (2, 3, 4, 6, 8) if last % w == 0]
        if kind == "vectors" and widths:
            width = self.pick(*widths)
            assert isinstance(width, int)
            vectors = self.build.at_depth(lambda a: as_vector(width, a), node, len(dims) - 1)
            return (
                self.build.at_depth(as_scalar, self.nest(vectors, len(dims)), len(dims) - 1),
                dims,
            )
        return self.nest(node, len(dims)), dims

    def scalar_sum(self, node: Node, dims: Dims) -> Node:
        memory = self.pick(None, Memory.PRIVATE, Memory.LOCAL, Memory.GLOBAL)
        zero: Node = Literal(0.25)
        if isinstance(memory, Memory):
            zero = To(memory, zero)

        def total(row: Node) -> Node:
            return self.build.reduce(lambda acc, x: call("add", acc, x), zero, row)

        return self.build.nest([self.map_id() for _ in dims[:-1]], total, node)

    def array_sum(self, node: Node, dims: Dims) -> Node:
        """[n][a][b] summed over n into an accumulator array, then copied out."""
        memory = self.pick(Memory.PRIVATE, Memory.LOCAL, Memory.GLOBAL)
        assert isinstance(memory, Memory)
        rank = len(dims) - 1
        initial = To(
            memory,
            self.build.nest([self.map_id() for _ in range(rank)], identity, fill(0.0, *dims[1:])),
        )

        def update(acc: Ref, x: Ref) -> Node:
            pairs = self.build.zip_nd(rank, acc, x)

            def add(pair: Node) -> Node:
                return call("add", get(pair, 0), get(pair, 1))

            return self.build.nest([self.map_id() for _ in range(rank)], add, pairs)

        summed = self.build.reduce(update, initial, node)
        return self.nest(summed, rank + 1)


@st.composite
def pipelines(draw: st.DrawFn) -> Program:
    """A program of one or two kernels over one input; elaboration may still refuse it."""
    build = Builder()
    maker = _Maker(draw, build)
    rank = draw(st.integers(1, 3))
    dims = tuple(draw(st.sampled_from(SIZES)) for _ in range(rank))
    node: Node = Ref("x")
    kernels: list[Kernel] = []
    shape = dims
    for name in ("one", "two")[: draw(st.sampled_from([1, 1, 1, 2]))]:
        viewed, dims = maker.views(node, dims)
        body, dims = maker.writing(viewed, dims, draw(st.integers(1, 3)))
        kernels.append(Kernel(name, body))
        node = Ref(name)
    return Program("random", (), (), (), (), (Input("x", array(FLOAT, *shape)),), tuple(kernels))
