"""The high-level convolution: what is computed, nothing about how.

"Auto-Generation of Specialized Direct Convolutions for Mobile GPUs" (GPGPU'20), Listing 3,
and "Mapping Parallelism in a Functional IR through Constraint Satisfaction" (CC'22),
Listing 2, for every layer that :class:`LayerSpec` describes. Layouts, groups, strides and
dilation are views; bias and activation are applied as a result is stored.
"""

from __future__ import annotations

from mapper.ast_model.builders import Builder, call, get
from mapper.ast_model.nodes import Join, Kernel, Literal, Node, Program, Ref, Split, Zip
from mapper.layer_spec import LayerSpec, Layout, block_of
from mapper.programs.activations import activation_function
from mapper.programs.common import (
    BIAS,
    IMAGE,
    WEIGHTS,
    C,
    M,
    layer_inputs,
    layer_sizes,
    padded_image,
    windows,
)


def high_level_convolution(layer: LayerSpec) -> Program:
    """One kernel: maps over rows, columns and filters around a sequential reduction.

    Where there are several, maps over images stand outside and over groups around filters. The
    weights are constant: sketches of it lay them out once, before any run.
    """
    build = Builder()
    activation = activation_function(layer)
    return Program(
        name="high_level_convolution",
        sizes=layer_sizes(layer),
        parameters=(),
        requirements=(),
        functions=() if activation is None else (activation,),
        inputs=layer_inputs(layer),
        kernels=(Kernel("convolution", _HighLevel(build, layer).result()),),
        constants=(WEIGHTS,),
    )


class _HighLevel:
    def __init__(self, build: Builder, layer: LayerSpec) -> None:
        self.build = build
        self.layer = layer
        self.layout = layer.layout
        self.activation = activation_function(layer)

    def result(self) -> Node:
        """The layer's result, at its edge."""
        if self.layout is Layout.NHWC and self.layer.batch == 1:
            return self.of_image(Ref(IMAGE))
        return self.build.map("image", self.of_image, Ref(IMAGE))

    def of_image(self, image: Node) -> Node:
        """The result of one image, in the layer's layout."""
        build = self.build
        result = build.map(
            "row",
            lambda row: build.map("column", self.of_window, row),
            windows(build, self.layer, padded_image(build, self.layer, self.channels_last(image))),
        )
        match self.layout:
            case Layout.NHWC:
                return result
            case Layout.NCHW:
                return build.permute((2, 0, 1), result)
            case Layout.NCHW16C:
                blocks = build.split_at(block_of(self.layer.filters), result, 2)
                return build.permute((2, 0, 1, 3), blocks)

    def channels_last(self, image: Node) -> Node:
        """[rows][columns][channels] of one image in the layer's layout."""
        build = self.build
        match self.layout:
            case Layout.NHWC:
                return image
            case Layout.NCHW:
                return build.permute((1, 2, 0), image)
            case Layout.NCHW16C:
                return build.join_at(build.permute((1, 2, 0, 3), image), 2)

    def of_window(self, window: Node) -> Node:
        """[filters]: all that one window [kh][kw][channels] gives."""
        build, filters = self.build, self.filters()
        if self.layer.groups == 1:
            return self.of_group(window, filters)
        # [kh][kw][G*C] -> [G][kh][kw][C]
        parts = build.permute((2, 0, 1, 3), build.split_at(C, window, 2))
        pairs = Zip((parts, Split(M, filters)))
        return Join(
            build.map("group", lambda pair: self.of_group(get(pair, 0), get(pair, 1)), pairs)
        )

    def filters(self) -> Node:
        """[filters][kh][kw][C], each with its bias if the layer has one."""
        weights: Node = Ref(WEIGHTS)
        if self.layout is not Layout.NHWC:
            weights = self.build.at_depth(
                lambda one: self.build.permute((1, 2, 0), one), weights, 1
            )
        return Zip((weights, Ref(BIAS))) if self.layer.bias else weights

    def of_group(self, window: Node, filters: Node) -> Node:
        """[M]: the window [kh][kw][C] of a group's channels under that group's filters."""
        return Join(self.build.map("filter", lambda one: self.of_filter(window, one), filters))

    def of_filter(self, window: Node, one: Node) -> Node:
        """[1]: one output element."""
        build = self.build
        weights = get(one, 0) if self.layer.bias else one
        pairs = Zip((Join(Join(window)), Join(Join(weights))))
        total = build.reduce(
            lambda acc, x: call("fma", get(x, 0), get(x, 1), acc),
            Literal(0.0),
            pairs,
            step="product",
        )
        if self.activation is None and not self.layer.bias:
            return total
        return build.map("store", lambda value: self.stored(value, one), total)

    def stored(self, value: Node, one: Node) -> Node:
        """Bias added, activation applied."""
        if self.layer.bias:
            value = call("add", value, get(one, 1))
        return value if self.activation is None else call(self.activation.name, value)
