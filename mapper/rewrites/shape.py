"""A layer's sizes as the lowering uses them: names of program sizes, extents of windows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mapper.ast_model.index_expr import Expr, const, symbol
from mapper.layer_spec import LayerSpec, Layout


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of one layer; channels and filters are those of one group.

    With ``columns`` the channels are those of all taps, and there is one tap (im2col). With
    ``channelwise`` all filters are of one group, and each has one channel, its own.
    """

    layer: LayerSpec
    flat: bool
    columns: bool = False
    channelwise: bool = False

    @property
    def computed(self) -> LayerSpec:
        """The layer that the main kernel computes; edges are those of ``layer``."""
        layer = self.layer
        if not self.columns:
            return layer
        return replace(
            layer,
            channels=layer.channels * layer.kernel_height * layer.kernel_width,
            height=layer.output_height,
            width=layer.output_width,
            kernel_height=1,
            kernel_width=1,
            stride_y=1,
            stride_x=1,
            dilation_y=1,
            dilation_x=1,
            pad_top=0,
            pad_left=0,
            pad_bottom=0,
            pad_right=0,
            # As many channels need not be blocks of what the layer's edges are in.
            layout=Layout.NHWC,
        )

    @property
    def sizes(self) -> tuple[tuple[str, int], ...]:
        """The named sizes of the program."""
        layer = self.computed
        named = (
            ("N", layer.batch),
            ("G", 1 if self.channelwise else layer.groups),
            ("C", layer.channels // layer.groups),
            ("H", 1 if self.flat else layer.height),
            ("W", layer.height * layer.width if self.flat else layer.width),
            ("M", layer.filters if self.channelwise else layer.filters // layer.groups),
            ("kh", layer.kernel_height),
            ("kw", layer.kernel_width),
        )
        return tuple(pair for pair in named if pair[0] not in ("N", "G") or pair[1] > 1)

    @property
    def output_height(self) -> int:
        """Rows of the result as it is computed."""
        return 1 if self.flat else self.computed.output_height

    @property
    def output_width(self) -> int:
        """Columns of the result as it is computed."""
        layer = self.computed
        return layer.output_height * layer.output_width if self.flat else layer.output_width

    @property
    def window_height(self) -> Expr:
        """Rows from the first to the last that a window touches."""
        return (KH - 1) * self.computed.dilation_y + 1

    @property
    def window_width(self) -> Expr:
        """Columns from the first to the last that a window touches."""
        return (KW - 1) * self.computed.dilation_x + 1

    @property
    def batch(self) -> Expr:
        """Images."""
        return N if self.computed.batch > 1 else const(1)

    @property
    def groups(self) -> Expr:
        """Groups of channels and filters."""
        return G if self.computed.groups > 1 and not self.channelwise else const(1)


N, G, C, H, W = symbol("N"), symbol("G"), symbol("C"), symbol("H"), symbol("W")
M, KH, KW = symbol("M"), symbol("kh"), symbol("kw")
TAPS = KH * KW
