"""What the convolution programs share: inputs, the padded image and parameter domains."""

from __future__ import annotations

from mapper.ast_model.builders import Builder
from mapper.ast_model.index_expr import Expr, ExprLike, as_expr, symbol
from mapper.ast_model.nodes import Input, Node, Ref
from mapper.ast_model.types import FLOAT, array
from mapper.layer_spec import LayerSpec

IMAGE = "image"
WEIGHTS = "weights"


def layer_sizes(layer: LayerSpec) -> tuple[tuple[str, int], ...]:
    """The layer as named sizes of a program."""
    return (
        ("C", layer.channels),
        ("H", layer.height),
        ("W", layer.width),
        ("M", layer.filters),
        ("kh", layer.kernel_height),
        ("kw", layer.kernel_width),
    )


C, H, W, M = symbol("C"), symbol("H"), symbol("W"), symbol("M")
KH, KW = symbol("kh"), symbol("kw")


def layer_inputs() -> tuple[Input, ...]:
    """image [H][W][C] and weights [M][kh][kw][C] (GPGPU'20, Listing 3)."""
    return (
        Input(IMAGE, array(FLOAT, H, W, C)),
        Input(WEIGHTS, array(FLOAT, M, KH, KW, C)),
    )


def padded_image(build: Builder, layer: LayerSpec, extra: ExprLike) -> Node:
    """The image with the layer's border and ``extra`` rows and columns below and to the right."""
    return build.pad_2d(
        (layer.pad_top, as_expr(extra) + layer.pad_bottom),
        (layer.pad_left, as_expr(extra) + layer.pad_right),
        Ref(IMAGE),
    )


def windows(build: Builder, layer: LayerSpec, image: Node) -> Node:
    """[OH][OW][kh][kw][C]: every window of the padded image."""
    return build.slide_2d((KH, KW), (layer.stride, layer.stride), image)


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
