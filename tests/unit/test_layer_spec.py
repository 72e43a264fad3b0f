"""What a layer is, what it refuses, and its JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from mapper.errors import InputError
from mapper.layer_spec import Activation, DType, LayerSpec, Layout
from tests.conformance.random_layers import layers

PLAIN = LayerSpec(8, 9, 7, 4)
DOCUMENT = {"channels": 8, "height": 9, "width": 7, "filters": 4}


def problems_of(**fields: Any) -> list[str]:
    with pytest.raises(InputError) as caught:
        LayerSpec(**{**DOCUMENT, **fields})
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"batch": 0}, "layer.batch: is out of range; found 0; allowed: 1 to 1048576"),
        ({"stride": 0}, "layer.stride: is out of range; found 0; allowed: 1 to 1048576"),
        ({"dilation_x": True}, "layer.dilation_x: is not an integer; found True"),
        ({"pad_top": -1}, "layer.pad_top: is out of range; found -1; allowed: 0 to 1048576"),
        ({"bias": 1}, "layer.bias: is not a truth value; found 1; allowed: true or false"),
        ({"activation": "tanh"}, "layer.activation: is not one of the known; found 'tanh'; "
         "allowed: none, relu, relu6, leaky_relu, sigmoid"),
        ({"dtype": "float64"}, "layer.dtype: is not one of the known; found 'float64'; "
         "allowed: float32, float16"),
        ({"layout": ["NHWC"]}, "layer.layout: is not one of the known; found ['NHWC']; "
         "allowed: NHWC, NCHW, NCHW16c"),
        ({"layout": "NCHW16c", "channels": 40}, "layer.channels: are no whole blocks of the layout "
         "NCHW16c; found 40; allowed: a multiple of 16, or fewer than 16 (try: the layout NHWC or "
         "NCHW)"),
        ({"layout": "NCHW16c", "filters": 17}, "layer.filters: are no whole blocks of the layout"),
        ({"activation": "leaky_relu", "activation_slope": 1.5},
         "layer.activation_slope: is not a slope; found 1.5; allowed: a number from 0 to 1"),
        ({"activation": "relu", "activation_slope": 0.5},
         "layer.activation_slope: the activation relu has no slope; found 0.5; "
         "allowed: 0.01, or the activation leaky_relu"),
        ({"groups": 3}, "layer.groups: does not divide the channels; found 3; "
         "allowed: a divisor of 8 channels and of 4 filters"),
        ({"groups": 8}, "layer.groups: does not divide the filters; found 8; "
         "allowed: a divisor of 8 channels and of 4 filters"),
        ({"dilation_x": 4}, "layer.kernel_width: the kernel, dilated, is larger than the padded "
         "input width; found 9; allowed: at most 7"),
        ({"kernel_height": 10}, "layer.kernel_height: the kernel is larger than the padded input "
         "height; found 10; allowed: at most 9"),
    ],
)  # fmt: skip
def test_each_mistake_is_named_with_what_is_allowed(fields: dict[str, Any], words: str):
    assert any(problem.startswith(words) for problem in problems_of(**fields))


def test_all_mistakes_are_told_at_once():
    found = problems_of(batch=0, groups="two", layout="CHWN")
    assert [problem.split(":")[0] for problem in found] == [
        "layer.batch",
        "layer.groups",
        "layer.layout",
    ]


def test_stride_sets_both_and_is_what_both_are():
    strided = replace(PLAIN, stride=2)
    assert (strided.stride_y, strided.stride_x, strided.stride) == (2, 2, 2)
    assert strided == LayerSpec(8, 9, 7, 4, stride_y=2, stride_x=2)
    with pytest.raises(InputError, match="strides of their own; found 1 and 2"):
        _ = replace(PLAIN, stride_x=2).stride


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("batch", [1, 3])
def test_shapes_and_arithmetic(layout: Layout, batch: int):
    layer = LayerSpec(
        8, 9, 7, 4, 3, 2, groups=2, dilation_y=2, dilation_x=3, pad_top=1, pad_right=2,
        stride_y=2, batch=batch, layout=layout,
    )  # fmt: skip
    # Rows: 9 + 1, windows of 5 every 2; columns: 7 + 2, windows of 4.
    assert (layer.output_height, layer.output_width) == (3, 6)
    images = (batch,) if batch > 1 else ()
    wanted = {
        Layout.NHWC: ((*images, 9, 7, 8), (4, 3, 2, 4), (*images, 3, 6, 4)),
        Layout.NCHW: ((batch, 8, 9, 7), (4, 4, 3, 2), (batch, 4, 3, 6)),
        # Fewer than 16 channels and filters are one block each.
        Layout.NCHW16C: ((batch, 1, 9, 7, 8), (4, 4, 3, 2), (batch, 1, 3, 6, 4)),
    }
    assert (layer.image_shape, layer.weights_shape, layer.output_shape) == wanted[layout]
    assert layer.accumulation_length == 4 * 3 * 2
    assert layer.macs == batch * 3 * 6 * 4 * (4 * 3 * 2)
    assert layer.operations == 2 * layer.macs


def test_channels_lie_in_blocks_of_sixteen():
    layer = LayerSpec(48, 9, 7, 32, groups=2, layout="NCHW16c")
    assert layer.image_shape == (1, 3, 9, 7, 16)
    assert layer.weights_shape == (32, 24, 3, 3)
    assert layer.output_shape == (1, 2, 7, 5, 16)


@pytest.mark.parametrize("groups", [1, 2, 3, 48])
@pytest.mark.parametrize("most", [1, 5, 20, 40])
def test_a_cut_layer_keeps_whole_blocks(groups: int, most: int):
    layer = LayerSpec(96, 9, 7, 48, groups=groups, layout="NCHW16c")
    cut = layer.scaled(spatial=4, channels=most, filters=most)
    assert cut.channels <= most and cut.filters <= most
    assert cut.layout is Layout.NCHW16C


@given(layer=layers())
def test_json_round_trip(layer: LayerSpec):
    value = json.loads(json.dumps(layer.to_json()))
    assert value["schema"] == "nestmap/layer/2"
    assert LayerSpec.from_json(value) == layer


def test_the_first_schema_is_read_and_has_its_own_fields_only():
    value = {"schema": "nestmap/layer/1", **DOCUMENT, "stride": 2, "pad_top": 1, "name": "old"}
    assert LayerSpec.from_json(value) == LayerSpec(8, 9, 7, 4, stride=2, pad_top=1, name="old")
    with pytest.raises(InputError, match=r"/groups: unknown field.*schema nestmap/layer/2"):
        LayerSpec.from_json({**value, "groups": 2})


def test_shorthands_of_a_document():
    assert LayerSpec.from_json({**DOCUMENT, "stride": 2, "dilation": 3}) == LayerSpec(
        8, 9, 7, 4, stride=2, dilation_y=3, dilation_x=3
    )
    line = LayerSpec.from_json({"channels": 2, "filters": 3, "length": 9, "kernel": 5})
    assert line == LayerSpec.one_dimensional(2, 9, 3, 5) == LayerSpec(2, 1, 9, 3, 1, 5)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"depth": 4}, "/depth: 3-D convolutions are not done; found depth; "
         "allowed: height and width, or length"),
        ({"stride": 2, "stride_x": 1}, "/stride_x: is said by stride too; found 1"),
        ({"length": 4}, "/height: is said by length and kernel; found 9"),
        ({"kernel": 4}, "/kernel: goes with length"),
        ({"schema": "nestmap/layer/3"}, "/schema: unknown schema; found 'nestmap/layer/3'"),
        ({"colour": 1}, "/colour: unknown field"),
        ({"name": 1}, "/name: is not a text; found 1"),
    ],
)  # fmt: skip
def test_mistakes_of_a_document(fields: dict[str, Any], words: str):
    with pytest.raises(InputError) as caught:
        LayerSpec.from_json({**DOCUMENT, **fields})
    assert str(caught.value).startswith(words)


def test_missing_fields_are_named():
    with pytest.raises(InputError, match="/channels: missing field\n/width: missing field"):
        LayerSpec.from_json({"height": 1, "filters": 2})


def test_texts_become_members_so_that_layers_compare():
    layer = LayerSpec(8, 9, 7, 4, activation="relu", dtype="float16", layout="NCHW")
    assert layer.activation is Activation.RELU
    assert (layer.dtype, layer.layout) == (DType.FLOAT16, Layout.NCHW)


@given(layer=layers())
def test_a_cut_layer_is_a_layer_of_the_same_kind(layer: LayerSpec):
    cut = layer.scaled(spatial=2, channels=2, filters=2)
    assert cut.height <= layer.height and cut.width <= layer.width
    assert cut.channels <= 2 and cut.filters <= 2
    kind = {"height", "width", "channels", "filters", "groups", "name"}
    kept = {key: value for key, value in cut.to_json().items() if key not in kind}
    assert kept == {key: value for key, value in layer.to_json().items() if key not in kind}
