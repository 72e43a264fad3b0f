"""Image, weights, bias and result: the layouts at the edges, and the one used in between.

Inside a program the image is [group][image][channel][row][column], the weights [group]
[filter][channel][tap], the result [image][group][filter][row][column], whatever the edges are.
"""

from __future__ import annotations

from mapper.ast_model.builders import Builder, fill
from mapper.ast_model.index_expr import Expr, ExprLike, as_expr, const, exact_div
from mapper.ast_model.nodes import Input, Join, Node, Pad, Ref, Slide, Split
from mapper.layer_spec import Layout, block_of
from mapper.programs.common import BIAS, IMAGE, WEIGHTS, edge_inputs
from mapper.rewrites.labelled import Labelled
from mapper.rewrites.shape import KH, KW, C, H, M, Shape, W


def inputs_of(shape: Shape) -> tuple[Input, ...]:
    """The buffers that a caller provides (docs/layers.md)."""
    layer = shape.layer
    channels, kernel = _own_sizes(shape)
    return edge_inputs(
        layer,
        images=shape.batch,
        groups=shape.groups,
        channels=channels,
        # Rows that are joined for the computation are rows to the caller.
        rows=(layer.height, layer.width) if shape.flat else (H, W),
        kernel=kernel,
        every=M if shape.channelwise else None,
    )


def _own_sizes(shape: Shape) -> tuple[Expr, tuple[Expr, Expr]]:
    """Channels and kernel of the caller's buffers, which are not the program's with columns."""
    if not shape.columns:
        return C, (KH, KW)
    layer = shape.layer
    channels = layer.channels // layer.groups
    return const(channels), (const(layer.kernel_height), const(layer.kernel_width))


def image(build: Builder, shape: Shape, vector: Expr | None = None) -> Labelled:
    """The image as [g][n][c][h][w], without the layer's padding.

    With a width of ``vector`` it is [g][n][c][h][w][iv], rows of vectors: none holds pixels of two
    rows of the layer, also where these are joined.
    """
    layer = shape.layer
    if layer.layout is Layout.NCHW:
        found = Labelled(build, Ref(IMAGE), ("n", "gc", "h", "w"))
    elif layer.layout is Layout.NCHW16C:
        found = Labelled(build, Ref(IMAGE), ("n", "blocks", "h", "w", "in_block"))
        found = found.order("n", "blocks", "in_block").merge("blocks", "in_block", "gc")
    elif layer.batch > 1:
        found = Labelled(build, Ref(IMAGE), ("n", "h", "w", "gc"))
    else:
        node = build.layout_map(lambda _: Ref(IMAGE), fill(0.0, 1))
        found = Labelled(build, node, ("n", "h", "w", "gc"))
    channels = M if shape.channelwise else _own_sizes(shape)[0]
    found = found.split("gc", channels, "g", "c").order("g", "n", "c", "h", "w")
    length, rest = as_expr(W), ("h", "w")
    if vector is not None:
        found = found.split("w", vector, "w", "iv")
        length, rest = exact_div(W, vector), ("h", "w", "iv")
    if shape.flat and not shape.columns:
        found = found.at("h", lambda plane: Split(length, Join(plane)), rest)
    return found


def bordered(shape: Shape, array: Labelled, rows: ExprLike, columns: ExprLike) -> Labelled:
    """[...][h][w] with the layer's padding and more rows below and columns to the right.

    Exactly what the windows touch: what a stride leaves over at the far ends is cut off.
    """
    layer, sizes = shape.computed, dict(shape.sizes)
    used_height, used_width = _touched(shape)
    below = as_expr(rows) + (used_height - sizes["H"] - layer.pad_top)
    right = as_expr(columns) + (used_width - sizes["W"] - layer.pad_left)
    if all(p == 0 for p in (layer.pad_top, layer.pad_left, below, right)):
        return array
    return array.at(
        "h",
        lambda plane: array.build.pad_2d((layer.pad_top, below), (layer.pad_left, right), plane),
        ("h", "w"),
    )


def bordered_vectors(
    shape: Shape, array: Labelled, rows: ExprLike, columns: ExprLike, front: ExprLike, width: Expr
) -> Labelled:
    """[...][h][w][iv], vectors of ``width`` columns, with a border as :func:`bordered` has it and
    ``front`` columns more to the left: each vector is image or border as a whole."""
    layer, sizes = shape.computed, dict(shape.sizes)
    used_height, used_width = _touched(shape)
    below = as_expr(rows) + (used_height - sizes["H"] - layer.pad_top)
    before = as_expr(front) + layer.pad_left
    # In vectors: all that the windows touch, less what is in front, less the image.
    every = exact_div(as_expr(front) + columns + used_width, width)
    left = exact_div(before, width)
    right = every - left - exact_div(W, width)
    return array.at(
        "h",
        lambda plane: array.build.pad_2d((layer.pad_top, below), (left, right), plane),
        ("h", "w", "iv"),
    )


def _touched(shape: Shape) -> tuple[int, int]:
    """Rows and columns that the windows touch, the layer's padding among them."""
    layer = shape.computed
    return (
        (shape.output_height - 1) * layer.stride_y + layer.window_height,
        (shape.output_width - 1) * layer.stride_x + layer.window_width,
    )


def columns(build: Builder, shape: Shape) -> Labelled:
    """[g][n][c][h][w]: of each output, as pixels of one row, the window; channels of all taps."""
    layer = shape.layer
    plain = bordered(Shape(layer, flat=False), image(build, shape), 0, 0)
    found = plain.at(
        "h",
        lambda plane: build.slide_2d(
            (layer.window_height, layer.window_width), (layer.stride_y, layer.stride_x), plane
        ),
        ("oy", "ox", "kh", "kw"),
    )
    found = found.at("kh", lambda lines: _every(layer.dilation_y, lines), ("kh", "kw"))
    found = found.at("kw", lambda line: _every(layer.dilation_x, line), ("kw",))
    found = found.order("g", "n", "c", "kh", "kw", "oy", "ox")
    found = found.merge("kh", "kw", "tap").merge("c", "tap", "c").merge("oy", "ox", "w")
    return found.split("w", W, "h", "w")


def weights(build: Builder, shape: Shape, tile: ExprLike) -> Labelled:
    """The weights as [g][block][c][tap][filter], filters in blocks of ``tile``."""
    if shape.layer.layout is Layout.NHWC:
        found = Labelled(build, Ref(WEIGHTS), ("gm", "kh", "kw", "c"))
    else:
        found = Labelled(build, Ref(WEIGHTS), ("gm", "c", "kh", "kw"))
    found = found.merge("kh", "kw", "tap").split("gm", M, "g", "m").split("m", tile, "block", "f")
    if shape.columns:
        found = found.order("g", "block", "f", "c", "tap").merge("c", "tap", "c")
        found = found.split("c", 1, "c", "tap")
    return found.order("g", "block", "c", "tap", "f")


def bias(build: Builder, tile: ExprLike) -> Labelled:
    """The bias as [g][block][filter], filters in blocks of ``tile``."""
    found = Labelled(build, Ref(BIAS), ("gm",))
    return found.split("gm", M, "g", "m").split("m", tile, "block", "f")


def at_edge(shape: Shape, result: Labelled) -> Node:
    """The layer's output layout of a result [n][g][m][h][w]."""
    layer = shape.layer
    result = result.order("n", "g", "m", "h", "w").merge("g", "m", "gm")
    if shape.flat:
        columns = as_expr(layer.output_width)
        result = result.at("h", lambda plane: Split(columns, Join(plane)), ("h", "w"))
    if layer.layout is Layout.NCHW:
        return result.node
    if layer.layout is Layout.NCHW16C:
        result = result.split("gm", block_of(layer.filters), "blocks", "in_block")
        return result.order("n", "blocks", "h", "w", "in_block").node
    result = result.order("n", "h", "w", "gm")
    return result.node if layer.batch > 1 else result.without("n").node


def windows(
    shape: Shape, array: Labelled, sizes: tuple[ExprLike, ExprLike], more: ExprLike = 0
) -> Labelled:
    """[...][h][w] as [...][ty][tx][h][w]: what blocks of ``sizes`` outputs need.

    ``more`` columns beyond these are there too, so that rows can be read in whole vectors.
    """
    (height, width), steps = _block(shape, sizes)
    return array.at(
        "h",
        lambda plane: array.build.slide_2d((height, width + more), steps, plane, strict=True),
        ("ty", "tx", "h", "w", *_behind(array, "w")),
    )


def own_channels(shape: Shape, array: Labelled) -> Labelled:
    """[g][n][c][h][w] as [g][n][c][h][w][f]: every filter has one channel, and it is its own."""
    return array.order("g", "n", "h", "w").split("c", M, "c", "f").order("g", "n", "c", "h", "w")


def _behind(array: Labelled, label: str) -> tuple[str, ...]:
    """The dimensions within that one."""
    return array.labels[array.labels.index(label) + 1 :]


def vector_windows(
    shape: Shape,
    array: Labelled,
    sizes: tuple[ExprLike, ExprLike],
    more: ExprLike,
    width: Expr,
    step: Expr,
) -> Labelled:
    """[...][h][w][iv], vectors of ``width`` columns, as :func:`windows` of whole vectors.

    There are ``step`` vectors from one window to the next.
    """
    (height, columns), (rows, _) = _block(shape, sizes)
    vectors = exact_div(columns + more, width)
    return array.at(
        "h",
        lambda plane: array.build.slide_2d((height, vectors), (rows, step), plane, strict=True),
        ("ty", "tx", "h", "w", "iv"),
    )


def _block(
    shape: Shape, sizes: tuple[ExprLike, ExprLike]
) -> tuple[tuple[Expr, Expr], tuple[Expr, Expr]]:
    """Rows and columns that a block of ``sizes`` outputs needs, and those to the next block."""
    layer = shape.computed
    rows, columns = (as_expr(size) for size in sizes)
    height = (rows - 1) * layer.stride_y + shape.window_height
    width = (columns - 1) * layer.stride_x + shape.window_width
    return (height, width), (rows * layer.stride_y, columns * layer.stride_x)


def taps(shape: Shape, patch: Labelled, front: ExprLike, more: ExprLike) -> Labelled:
    """A work-item's [h][w]... as [tap][r][p]...: for each tap what its rows and columns multiply.

    The patch has ``front`` columns before and ``more`` behind those that are used.
    """
    layer, build, rest = shape.computed, patch.build, _behind(patch, "w")
    if not shape.channelwise:
        patch = patch.at("w", lambda row: Pad(-as_expr(front), -as_expr(more), 0.0, row), ("w",))
    found = patch.at(
        "h",
        lambda plane: build.slide_2d(
            (shape.window_height, shape.window_width), (layer.stride_y, layer.stride_x), plane
        ),
        ("r", "p", "kh", "kw", *rest),
    )
    found = found.at("kh", lambda lines: _every(layer.dilation_y, lines), ("kh", "kw", *rest))
    found = found.at("kw", lambda line: _every(layer.dilation_x, line), ("kw", *rest))
    return found.order("kh", "kw", "r", "p").merge("kh", "kw", "tap")


def _every(step: int, line: Node) -> Node:
    """Every so many elements, from the first."""
    return line if step == 1 else Join(Slide(as_expr(1), as_expr(step), line, False))
