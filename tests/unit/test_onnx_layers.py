"""Convolutions read from ONNX models: padding modes, shapes, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mapper.errors import InputError, LimitError
from mapper.layer_spec import DType, LayerSpec
from nestmap.onnx_layers import layers_of_model, load_model

FLOAT = TensorProto.FLOAT


def model_of(
    image: list[Any],
    weights: list[int],
    *,
    bias: bool = False,
    dtype: int = FLOAT,
    **attributes: Any,
) -> onnx.ModelProto:
    """One Conv node ``c`` between X and Y."""
    inputs = ["X", "W", "B"] if bias else ["X", "W"]
    shapes = [image, weights, weights[:1]]
    infos = [
        helper.make_tensor_value_info(name, dtype, shape)
        for name, shape in zip(inputs, shapes, strict=False)
    ]
    node = helper.make_node("Conv", inputs, ["Y"], name="c", **attributes)
    graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info("Y", dtype, None)])
    return helper.make_model(graph)


def layer_of(*args: Any, **attributes: Any) -> LayerSpec:
    (imported,) = layers_of_model(model_of(*args, **attributes))
    return imported.layer


def test_attributes_become_fields():
    layer = layer_of(
        [2, 4, 9, 8], [6, 2, 3, 2], bias=True, group=2, strides=[2, 1], dilations=[1, 3],
        pads=[1, 0, 2, 3], kernel_shape=[3, 2],
    )  # fmt: skip
    assert layer == LayerSpec(
        4, 9, 8, 6, 3, 2, pad_top=1, pad_bottom=2, pad_right=3, name="c", batch=2, groups=2,
        stride_y=2, dilation_x=3, bias=True, layout="NCHW",
    )  # fmt: skip


def test_one_dimension_is_one_row():
    layer = layer_of([1, 4, 9], [6, 4, 3], strides=[2], pads=[1, 2])
    assert layer == LayerSpec.one_dimensional(
        4, 9, 6, 3, stride=2, pad_left=1, pad_right=2, name="c", layout="NCHW"
    )


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("size", [5, 6, 7])
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_same_padding_gives_an_output_for_every_stride(mode: str, size: int, stride: int):
    layer = layer_of(
        [1, 1, size, size], [1, 1, 3, 2], auto_pad=mode, strides=[stride, stride], dilations=[1, 2]
    )
    assert layer.output_height == layer.output_width == -(-size // stride)
    before, after = layer.pad_top + layer.pad_left, layer.pad_bottom + layer.pad_right
    assert before <= after if mode == "SAME_UPPER" else before >= after
    assert abs(layer.pad_top - layer.pad_bottom) <= 1


def test_an_odd_element_of_same_padding_stands_where_the_mode_says():
    upper, lower = (
        layer_of([1, 1, 4, 4], [1, 1, 2, 2], auto_pad=mode) for mode in ("SAME_UPPER", "SAME_LOWER")
    )
    assert (upper.pad_top, upper.pad_left, upper.pad_bottom, upper.pad_right) == (0, 0, 1, 1)
    assert (lower.pad_top, lower.pad_left, lower.pad_bottom, lower.pad_right) == (1, 1, 0, 0)


def test_valid_padding_is_none():
    assert layer_of([1, 1, 4, 4], [1, 1, 2, 2], auto_pad="VALID").output_height == 3


def test_half_floats_are_stored_as_such():
    layer = layer_of([1, 1, 4, 4], [1, 1, 2, 2], dtype=TensorProto.FLOAT16)
    assert layer.dtype is DType.FLOAT16


def test_shapes_inside_a_graph_are_inferred_and_weights_may_be_initialisers():
    weights = onnx.numpy_helper.from_array(np.zeros((2, 3, 3, 3), np.float32), "W")
    nodes = [
        helper.make_node("Relu", ["X"], ["R"]),
        helper.make_node("Conv", ["R", "W"], ["Y"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["Y"], ["Z"]),
    ]
    infos = [helper.make_tensor_value_info(n, FLOAT, [1, k, 5, 5]) for n, k in (("X", 3), ("Z", 2))]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [weights])
    (imported,) = layers_of_model(helper.make_model(graph))
    assert imported.layer.name == "conv1"
    assert (imported.image, imported.weights, imported.bias) == ("R", "W", "")
    assert imported.layer.output_shape == (1, 2, 5, 5)


@pytest.mark.parametrize(
    ("image", "weights", "attributes", "words"),
    [
        ([1, 1, 4, 4, 4], [1, 1, 2, 2, 2], {}, "X: a convolution of this rank is not done; found "
         "3-D, weights of 5 dimensions; allowed: 1-D or 2-D"),
        ([1, 1, 4, 4], [1, 1, 2], {}, "X: a convolution of this rank is not done; found 2-D, "
         "weights of 3 dimensions"),
        (["N", 1, 4, 4], [1, 1, 2, 2], {}, "X: sizes are not numbers; found N; allowed: numbers"),
        ([1, 3, 4, 4], [1, 1, 2, 2], {}, "group: channels of X are not those of W times the "
         "groups; found 3; allowed: 1 x 1"),
        ([1, 1, 4, 4], [1, 1, 2, 2], {"strides": [1]}, "strides: another number of values; "
         "found 1; allowed: 2"),
        ([1, 1, 4, 4], [1, 1, 2, 2], {"strides": [0, 1]}, "layer.stride_y: is out of range"),
        ([1, 1, 4, 4], [1, 1, 2, 2], {"pads": [-1, 0, 0, 0]}, "layer.pad_top: is out of range"),
        ([1, 1, 4, 4], [1, 1, 2, 2], {"auto_pad": "SOME"}, "auto_pad: unknown; found 'SOME'"),
        ([1, 1, 4, 4], [1, 1, 2, 2], {"group": 1.5}, "group: is no attribute of Conv, or of "
         "another type; found FLOAT"),
        ([1, 1, 4, 4], [1, 1, 2, 2], {"kernel_shape": [3, 3]}, "kernel_shape: contradicts the "
         "weights; found (3, 3); allowed: [2, 2]"),
        ([1, 1, 4, 4], [1, 1, 2, 2], {"dtype": TensorProto.INT64}, "X: elements are of another "
         "type; found INT64; allowed: float32, float16"),
    ],
)  # fmt: skip
def test_what_is_no_layer_is_refused_by_name(
    image: list[Any], weights: list[int], attributes: dict[str, Any], words: str
):
    with pytest.raises(InputError) as caught:
        layers_of_model(model_of(image, weights, **attributes))
    assert str(caught.value).startswith(f"c: {words}")


def test_files_are_bounded_and_must_be_models(tmp_path: Path):
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of([1, 1, 4, 4], [1, 1, 2, 2]).SerializeToString())
    assert len(layers_of_model(load_model(path))) == 1
    with pytest.raises(LimitError, match="is too long; found more than 10 bytes"):
        load_model(path, max_bytes=10)
    path.write_bytes(b"\xff" * 40)
    with pytest.raises(InputError, match="is no ONNX model"):
        load_model(path)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        load_model(tmp_path / "absent.onnx")
