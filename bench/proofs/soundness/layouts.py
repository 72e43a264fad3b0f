"""Random layout changes, for what is read and for where results are written."""

from __future__ import annotations

from bench.proofs.soundness.growth import MAX_ELEMENTS, Growth
from bench.proofs.soundness.shapes import Length, Shape
from mapper.ast_model.builders import reorder_stride, reverse
from mapper.ast_model.index_expr import as_expr, const, exact_div
from mapper.ast_model.nodes import Join, Node, Pad, Slide, Split, Transpose

_MAX_RANK = 5
Viewed = tuple[Node, Shape]


def views(growth: Growth, node: Node, shape: Shape, most: int = 2) -> Viewed:
    """Up to ``most`` layout changes of what is read."""
    for _ in range(growth.choose.number(0, most)):
        node, shape = view(growth, node, shape)
    return node, shape


def view(growth: Growth, node: Node, shape: Shape, *, constant_border: bool = True) -> Viewed:
    """One layout change of an array that is read; none where the kind drawn does not fit."""
    kinds = ["reverse", "stride", "split", "tuned split", "slide", "tuned slide", "crop"]
    if constant_border:
        kinds.append("pad")
    depth = growth.choose.number(0, shape.rank - 1)
    if depth + 1 < shape.rank:
        kinds += ["transpose", "transpose", "transpose", "join"]
    kind = growth.choose.pick(kinds)
    at = growth.build.at_depth
    length = shape.lengths[depth]
    match kind:
        case "split" | "tuned split" | "stride" | "reverse" | "transpose" | "join" | "crop":
            return _permuted(growth, kind, node, shape, depth)
        case "slide" if (length.value or 0) > 2 and shape.rank < _MAX_RANK:
            size, step = growth.choose.pick(((2, 1), (2, 2), (3, 1), (3, 2)))
            value = ((length.value or 0) - size) // step + 1
            made = shape.replaced(depth, 1, Length.of(value), Length.of(size))
            if made.most > MAX_ELEMENTS:
                return node, shape
            return at(lambda a: Slide(const(size), const(step), a, False), node, depth), made
        case "tuned slide" if (length.value or 0) > 3 and shape.rank < _MAX_RANK:
            values = growth.choose.pick(((1, 2), (2, 3), (1, 3)))
            most = length.most * max(values)
            if shape.most // length.most * most > MAX_ELEMENTS:
                return node, shape
            window = growth.parameter(values)
            if window is None:
                return node, shape
            made = shape.replaced(
                depth,
                1,
                Length(length.expr - window + 1, None, length.most),
                Length(window, None, max(values)),
            )
            return at(lambda a: Slide(window, const(1), a, False), node, depth), made
        case "pad" if shape.most < MAX_ELEMENTS // 2:
            left, right = growth.choose.number(0, 1), growth.choose.number(0, 1)
            made = shape.replaced(depth, 1, _longer(length, left + right))
            return at(lambda a: Pad(const(left), const(right), 0.5, a), node, depth), made
        case _:
            return node, shape


def result_views(growth: Growth, node: Node, shape: Shape) -> Viewed:
    """Layout changes of a result, that is, of where it is written: each can be undone."""
    if not growth.choose.chance(30):
        return node, shape
    for _ in range(growth.choose.number(1, 2)):
        depth = growth.choose.number(0, shape.rank - 1)
        kinds = ["reverse", "stride", "split", "crop"]
        if depth + 1 < shape.rank:
            kinds += ["transpose", "transpose", "join", "join"]
        node, shape = _permuted(growth, growth.choose.pick(kinds), node, shape, depth)
    return node, shape


def same_shape(growth: Growth, node: Node, shape: Shape) -> Node:
    """Perhaps another order of the elements within the same shape."""
    if not growth.choose.chance(50):
        return node
    depth = growth.choose.number(0, shape.rank - 1)
    length = shape.lengths[depth]
    at = growth.build.at_depth
    if depth + 1 < shape.rank and length.expr == shape.lengths[depth + 1].expr:
        return at(Transpose, node, depth)
    if length.divisors and growth.choose.chance(30):
        stride = growth.choose.pick(length.divisors)
        return at(lambda a: reorder_stride(stride, a), node, depth)
    return at(reverse, node, depth)


def _permuted(growth: Growth, kind: str, node: Node, shape: Shape, depth: int) -> Viewed:
    """Changes that only move elements, or leave some away."""
    at = growth.build.at_depth
    length = shape.lengths[depth]
    match kind:
        case "reverse":
            return at(reverse, node, depth), shape
        case "stride" if length.divisors:
            stride = growth.choose.pick(length.divisors)
            return at(lambda a: reorder_stride(stride, a), node, depth), shape
        case "split" if length.divisors and shape.rank < _MAX_RANK:
            size = growth.choose.pick(length.divisors)
            outer = Length.of(length.most // size)
            made = shape.replaced(depth, 1, outer, Length.of(size))
            return at(lambda a: Split(const(size), a), node, depth), made
        case "tuned split" if len(length.divisors) > 2 and shape.rank < _MAX_RANK:
            # Now and then a value that does not divide: the rules must refuse it.
            values = sorted({*length.divisors[:3], growth.choose.number(1, length.most)})
            tile = growth.parameter(values)
            if tile is None:
                return node, shape
            made = shape.replaced(
                depth,
                1,
                Length(exact_div(length.expr, tile), None, length.most // min(values)),
                Length(tile, None, max(values)),
            )
            return at(lambda a: Split(tile, a), node, depth), made
        case "crop" if (length.value or 0) > 2:
            left = growth.choose.number(0, 1)
            right = growth.choose.number(1 - left, 1)
            made = shape.replaced(depth, 1, _longer(length, -left - right))
            return at(lambda a: Pad(const(-left), const(-right), 0.0, a), node, depth), made
        case "transpose" if depth + 1 < shape.rank:
            inner = shape.lengths[depth + 1]
            return at(Transpose, node, depth), shape.replaced(depth, 2, inner, length)
        case "join" if depth + 1 < shape.rank:
            inner = shape.lengths[depth + 1]
            known = length.value is not None and inner.value is not None
            most = length.most * inner.most
            joined = Length(length.expr * inner.expr, most if known else None, most)
            return at(Join, node, depth), shape.replaced(depth, 2, joined)
        case _:
            return node, shape


def _longer(length: Length, by: int) -> Length:
    value = None if length.value is None else length.value + by
    return Length(length.expr + as_expr(by), value, length.most + by)
