"""What the convolution programs share: inputs, the padded image and parameter domains."""

from __future__ import annotations

from functools import partial

from mapper.ast_model.builders import Builder
from mapper.ast_model.index_expr import Expr, ExprLike, as_expr, const, exact_div, symbol
from mapper.ast_model.nodes import Input, Join, Node, Slide
from mapper.ast_model.types import FLOAT, array
from mapper.layer_spec import LayerSpec, Layout, block_of

IMAGE = "image"
WEIGHTS = "weights"
BIAS = "bias"


def layer_sizes(layer: LayerSpec) -> tuple[tuple[str, int], ...]:
    """The layer as named sizes of a program; C and M are those of one group.

    N images and G groups are there where there are several.
    """
    several = (("N", layer.batch), ("G", layer.groups))
    return (
        *(pair for pair in several if pair[1] > 1),
        ("C", layer.channels // layer.groups),
        ("H", layer.height),
        ("W", layer.width),
        ("M", layer.filters // layer.groups),
        ("kh", layer.kernel_height),
        ("kw", layer.kernel_width),
    )


N, G = symbol("N"), symbol("G")
C, H, W, M = symbol("C"), symbol("H"), symbol("W"), symbol("M")
KH, KW = symbol("kh"), symbol("kw")


def layer_inputs(layer: LayerSpec) -> tuple[Input, ...]:
    """Image and weights (GPGPU'20, Listing 3), and a bias where there is one.

    Lengths as LayerSpec says: for one image, NHWC, [H][W][C] and [M][kh][kw][C].
    """
    return edge_inputs(
        layer,
        images=N if layer.batch > 1 else const(1),
        groups=G if layer.groups > 1 else const(1),
        channels=C,
        rows=(H, W),
        kernel=(KH, KW),
    )


def edge_inputs(
    layer: LayerSpec,
    *,
    images: Expr,
    groups: Expr,
    channels: Expr,
    rows: tuple[ExprLike, ExprLike],
    kernel: tuple[Expr, Expr],
    every: Expr | None = None,
) -> tuple[Input, ...]:
    """The buffers of a caller in the layer's layout, of lengths in the symbols of a program.

    ``channels`` are those of a group, as are the filters M; ``rows`` are those of the image with
    their length. ``every`` are the image's channels where a program counts groups otherwise.
    """
    every, filters = groups * channels if every is None else every, groups * M
    weights = array(FLOAT, filters, channels, *kernel)
    match layer.layout:
        case Layout.NCHW:
            image = array(FLOAT, images, every, *rows)
        case Layout.NCHW16C:
            block = block_of(layer.channels)
            image = array(FLOAT, images, exact_div(every, block), *rows, block)
        case Layout.NHWC:
            image = array(FLOAT, *((images,) if layer.batch > 1 else ()), *rows, every)
            weights = array(FLOAT, filters, *kernel, channels)
    inputs = (Input(IMAGE, image), Input(WEIGHTS, weights))
    return (*inputs, Input(BIAS, array(FLOAT, filters))) if layer.bias else inputs


def padded_image(
    build: Builder, layer: LayerSpec, image: Node, below: ExprLike = 0, right: ExprLike = 0
) -> Node:
    """The image with the layer's border and more rows below and columns to the right."""
    return build.pad_2d(
        (layer.pad_top, as_expr(below) + layer.pad_bottom),
        (layer.pad_left, as_expr(right) + layer.pad_right),
        image,
    )


def windows(build: Builder, layer: LayerSpec, image: Node) -> Node:
    """[OH][OW][kh][kw]...: every window of the padded image [rows][columns]..."""
    found = build.slide_2d(
        ((KH - 1) * layer.dilation_y + 1, (KW - 1) * layer.dilation_x + 1),
        (layer.stride_y, layer.stride_x),
        image,
    )
    for depth, step in ((2, layer.dilation_y), (3, layer.dilation_x)):
        if step > 1:
            # Of a window's rows (columns) every step-th: windows of one, joined.
            every = partial(_every, step)
            found = build.at_depth(every, found, depth)
    return found


def _every(step: int, lines: Node) -> Node:
    return Join(Slide(const(1), const(step), lines, strict=False))


def divisors(number: int) -> tuple[int, ...]:
    """Divisors, ascending."""
    return tuple(k for k in range(1, number + 1) if number % k == 0)


def divisors_of_range(low: int, high: int) -> tuple[int, ...]:
    """Every number that divides some number of ``low..high``, ascending."""
    found: set[int] = set()
    for number in range(low, high + 1):
        found.update(divisors(number))
    return tuple(sorted(found))


def minus(value: ExprLike) -> Expr:
    """The negative of an expression (a crop, for ``pad``)."""
    return -as_expr(value)
