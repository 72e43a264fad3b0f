"""Layers of every kind, small: a strategy for Hypothesis, and inputs for a layer."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from mapper.layer_spec import DEFAULT_SLOPE, Activation, LayerSpec, Layout

small = st.integers(1, 3)


@st.composite
def layers(draw: st.DrawFn) -> LayerSpec:
    """Up to three of everything; padding may be larger than the kernel."""
    groups, activation = draw(small), draw(st.sampled_from(Activation))
    kernel, dilation = (draw(small), draw(small)), (draw(small), draw(small))
    pads = [draw(st.integers(0, 4)) for _ in range(4)]  # top, left, bottom, right
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    # Large enough for one window, whatever the padding.
    least = [max(1, e - pads[i] - pads[i + 2]) for i, e in enumerate(extents)]
    height, width = (draw(st.integers(size, size + 4)) for size in least)
    leaky = activation is Activation.LEAKY_RELU
    return LayerSpec(
        channels=groups * draw(small),
        height=height,
        width=width,
        filters=groups * draw(small),
        kernel_height=kernel[0],
        kernel_width=kernel[1],
        stride_y=draw(small),
        stride_x=draw(small),
        pad_top=pads[0],
        pad_left=pads[1],
        pad_bottom=pads[2],
        pad_right=pads[3],
        batch=draw(small),
        groups=groups,
        dilation_y=dilation[0],
        dilation_x=dilation[1],
        bias=draw(st.booleans()),
        activation=activation,
        activation_slope=draw(st.sampled_from([0.0, 0.25, 1.0])) if leaky else DEFAULT_SLOPE,
        layout=draw(st.sampled_from(Layout)),
    )


def inputs_of(layer: LayerSpec, seed: int = 0) -> dict[str, np.ndarray]:
    """Standard normal numbers, as the layer stores them."""
    generator = np.random.default_rng(seed)
    shapes = {"image": layer.image_shape, "weights": layer.weights_shape}
    if layer.bias:
        shapes["bias"] = (layer.filters,)
    return {
        name: generator.standard_normal(shape, dtype=np.float32).astype(layer.dtype.value)
        for name, shape in shapes.items()
    }
