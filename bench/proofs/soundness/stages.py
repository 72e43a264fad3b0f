"""Random expressions that write: stages of maps and reduces, and what passes between them."""

from __future__ import annotations

from bench.proofs.soundness.growth import Growth, Scope
from bench.proofs.soundness.layouts import Viewed, result_views, same_shape, view, views
from bench.proofs.soundness.shapes import Length, Shape
from mapper.ast_model.builders import as_scalar, as_vector, call, fill, get, identity
from mapper.ast_model.index_expr import ExprLike
from mapper.ast_model.nodes import Join, Let, Literal, Node, Ref, To
from mapper.ast_model.types import Memory

_WIDTHS = (4, 2, 8, 3)
_ONE = Length.of(1)


def writing(
    growth: Growth, node: Node, shape: Shape, scope: Scope, depth: int, fuel: int
) -> Viewed:
    """An expression that writes an array computed from ``node``, under ``depth`` maps.

    ``fuel`` bounds how many stages follow one another; ``scope`` may be used besides.
    """
    choose = growth.choose
    if shape.rank > 1 and growth.room(shape.rank) and choose.chance(55):
        return _outer_map(growth, node, shape, scope, depth, fuel)
    written, shape = _stage(growth, node, shape, scope, depth)
    written, shape = result_views(growth, written, shape)
    if fuel == 0 or not growth.room(shape.rank + 1) or not choose.chance(70):
        return written, shape
    stored = To(growth.memory(depth), written)
    kind = choose.pick(("nested", "let", "let", "each"))
    if kind == "nested":
        viewed, shape = views(growth, stored, shape)
        return writing(growth, viewed, shape, scope, depth, fuel - 1)
    name = growth.build.name("t")
    inner: Scope = ((Ref(name), shape), *scope)
    if kind == "each" and shape.rank == 1:
        body, shape = _for_each(growth, Ref(name), shape, node, inner, depth, fuel - 1)
    else:
        viewed, shape = views(growth, Ref(name), shape)
        body, shape = writing(growth, viewed, shape, inner, depth, fuel - 1)
    return Let(name, stored, body), shape


def _outer_map(
    growth: Growth, node: Node, shape: Shape, scope: Scope, depth: int, fuel: int
) -> Viewed:
    """One map, and whatever writes inside it."""
    made: list[Shape] = []

    def body(item: Ref) -> Node:
        inner: Scope = ((item, shape.element), *scope)
        result, result_shape = writing(growth, item, shape.element, inner, depth + 1, fuel)
        made.append(result_shape)
        return result

    mapped = growth.build.map(growth.map_id(), body, node)
    return result_views(growth, mapped, made[0].with_outer(shape.lengths[0]))


def _for_each(
    growth: Growth, each: Ref, shape: Shape, node: Node, scope: Scope, depth: int, fuel: int
) -> Viewed:
    """For every element of ``each``, a scalar, something is written from another array."""
    arrays = [(ref, s) for ref, s in scope if s.rank > 0 and s.most * shape.most <= 300]
    other, other_shape = growth.choose.pick(arrays) if arrays else (node, shape)
    if not arrays:
        return writing(growth, each, shape, scope, depth, fuel)
    made: list[Shape] = []

    def body(item: Ref) -> Node:
        inner: Scope = ((item, Shape(())), *scope)
        result, result_shape = writing(growth, other, other_shape, inner, depth + 1, fuel)
        made.append(result_shape)
        return result

    mapped = growth.build.map(growth.map_id(), body, each)
    return mapped, made[0].with_outer(shape.lengths[0])


def _stage(growth: Growth, node: Node, shape: Shape, scope: Scope, depth: int) -> Viewed:
    """A perfect nest or a reduce over all of ``node``."""
    kinds = ["nest", "zip", "vectors", "sum"]
    if shape.rank > 1:
        kinds += ["sum", "array sum", "array sum"]
    kind = growth.choose.pick(kinds)
    if kind == "sum":
        return _scalar_sum(growth, node, shape, scope, depth)
    if kind == "array sum" and growth.room(3 * shape.rank):
        return _array_sum(growth, node, shape, depth)
    if kind == "zip":
        other = growth.other_like(shape, scope)
        if other is not None:
            return _zipped(growth, node, other, shape)
    widths = _widths(shape.lengths[-1])
    if kind == "vectors" and widths:
        width, place = growth.choose.pick(widths), shape.rank - 1
        vectors = growth.build.at_depth(lambda a: as_vector(width, a), node, place)
        nest = growth.build.nest(
            growth.map_ids(shape.rank), lambda v: _computed(growth, v, scope, depth), vectors
        )
        return growth.build.at_depth(as_scalar, nest, place), shape
    ids = growth.map_ids(shape.rank)
    return growth.build.nest(ids, lambda v: _computed(growth, v, scope, depth), node), shape


def _computed(growth: Growth, item: Node, scope: Scope, depth: int) -> Node:
    """A scalar or vector from one element, by a user function."""
    kinds = ["id", "twice", "plus", "half", "mixed", "stored", "called"]
    scalars = [ref for ref, shape in scope if shape.rank == 0]
    if scalars:
        kinds += ["scalar", "scalar"]
    match growth.choose.pick(kinds):
        case "id":
            return identity(item)
        case "twice":
            return call("add", item, item)
        case "half":
            return call("half", item)
        case "mixed":
            return call("mixed", item, Literal(1.5))
        case "stored":
            memory = growth.choose.pick((Memory.PRIVATE, Memory.LOCAL, Memory.GLOBAL))
            stored = To(memory if depth else growth.memory(depth), identity(item))
            return growth.build.let(stored, lambda q: call("add", q, item))
        case "called":
            return growth.build.let(call("half", item), lambda q: call("mixed", q, item))
        case "scalar":
            return call("add", item, growth.choose.pick(scalars))
        case _:
            return call("add", item, Literal(1.5))


def _zipped(growth: Growth, node: Node, other: Ref, shape: Shape) -> Viewed:
    """Two arrays, element by element, perhaps seen through a view together."""
    pairs = growth.build.zip_nd(shape.rank, node, same_shape(growth, other, shape))
    if growth.choose.chance(30):
        pairs, shape = view(growth, pairs, shape, constant_border=False)
    function = growth.choose.pick(("add", "sub", "larger", "mixed", "nearer"))

    def combined(pair: Ref) -> Node:
        return call(function, get(pair, 0), get(pair, 1))

    return growth.build.nest(growth.map_ids(shape.rank), combined, pairs), shape


def _update(growth: Growth) -> tuple[str, float]:
    """A reduction's function and where it starts."""
    return growth.choose.pick((("add", 0.25), ("max", -1000.0), ("min", 1000.0)))


def _switch(growth: Growth) -> ExprLike:
    """An option of a reduction's loop: no, yes, or a tuning parameter decides."""
    kind = growth.choose.pick(("no", "no", "yes", "tuned"))
    tuned = growth.parameter((0, 1)) if kind == "tuned" else None
    return tuned if tuned is not None else int(kind == "yes")


def _prefetch(growth: Growth) -> ExprLike:
    """Whether copies start an iteration early, and into how many buffers."""
    fixed = growth.choose.pick((0, 1, 2, None))
    if fixed is not None:
        return fixed
    tuned = growth.parameter((0, 1, 2))
    return 0 if tuned is None else tuned


def _scalar_sum(growth: Growth, node: Node, shape: Shape, scope: Scope, depth: int) -> Viewed:
    """The last dimension reduced into a scalar accumulator; it stays with length 1 or goes."""
    choose = growth.choose
    function, start = _update(growth)
    memory = choose.pick((None, Memory.PRIVATE, Memory.LOCAL, Memory.GLOBAL))
    zero: Node = Literal(start) if memory is None else To(memory, Literal(start))
    unroll, prefetch = _switch(growth), _prefetch(growth)
    outer = shape.rank - 1
    staged = choose.chance(30) and growth.room(shape.rank)
    widths = _widths(shape.lengths[-1])
    width = choose.pick(widths) if widths and choose.chance(25) else 0

    def total(row: Node) -> Node:
        values: Node = row
        if staged:
            nest = growth.build.map(
                growth.map_id(), lambda v: _computed(growth, v, scope, depth + outer), row
            )
            values = same_shape(
                growth, To(growth.memory(depth + outer), nest), Shape(shape.lengths[-1:])
            )
        if width:
            # Vectors, each added up over its lanes.
            values, combined = as_vector(width, values), "lanes"
        else:
            combined = function
        return growth.build.reduce(
            lambda acc, x: call(combined, acc, x),
            zero,
            values,
            unroll=unroll,
            prefetch=prefetch,
        )

    nest = growth.build.nest
    written = nest(growth.map_ids(outer), total, node) if outer else total(node)
    kept = Shape((*shape.lengths[:-1], _ONE))
    if outer and choose.chance(60):
        return growth.build.at_depth(Join, written, outer - 1), Shape(shape.lengths[:-1])
    return written, kept


def _widths(length: Length) -> list[int]:
    """The vector widths that divide a known length."""
    return [w for w in _WIDTHS if length.value is not None and length.value % w == 0]


def _array_sum(growth: Growth, node: Node, shape: Shape, depth: int) -> Viewed:
    """[n][a][b] reduced over n into an accumulator array, in a memory of its own or in place."""
    choose, build = growth.choose, growth.build
    function, start = _update(growth)
    memory = choose.pick((None, Memory.PRIVATE, Memory.LOCAL, Memory.GLOBAL))
    if memory is Memory.LOCAL and depth == 0:
        memory = Memory.GLOBAL
    inner = shape.element
    rank = inner.rank
    initial = build.nest(growth.map_ids(rank), identity, fill(start, *inner.exprs))
    staged = choose.chance(35) and growth.room(3 * rank)

    def add(pair: Ref) -> Node:
        return call(function, get(pair, 0), get(pair, 1))

    def update(acc: Ref, x: Ref) -> Node:
        if not staged:
            pairs = build.zip_nd(rank, acc, same_shape(growth, x, inner))
            return build.nest(growth.map_ids(rank), add, pairs)
        # Written anew in every round: the next round must wait until this one has read it.
        stored = To(growth.memory(depth), build.nest(growth.map_ids(rank), identity, x))
        name = build.name("t")
        pairs = build.zip_nd(rank, acc, same_shape(growth, Ref(name), inner))
        return Let(name, stored, build.nest(growth.map_ids(rank), add, pairs))

    accumulator = initial if memory is None else To(memory, initial)
    if memory is Memory.PRIVATE and choose.chance(40):
        # Each work-item keeps its own elements only, where the maps of these dimensions allow it.
        accumulator = To(memory, initial, choose.pick(tuple(range(1, rank + 1))))
    summed = build.reduce(
        update, accumulator, node, unroll=_switch(growth), prefetch=_prefetch(growth)
    )
    result = inner.with_outer(_ONE)
    if memory is None:
        return summed, result
    copied: Node = summed
    if choose.chance(50):
        copied, result = Join(summed), inner
    copied = same_shape(growth, copied, result)
    return build.nest(growth.map_ids(result.rank), identity, copied), result
