"""Convolutions of networks that no tuning record is of, and draws from them.

Sizes are those of the published architectures at their usual input, batch 1, NCHW. With bias where
inference has folded batch normalisation into the convolution, and its activation.
"""

from __future__ import annotations

from random import Random

from mapper.layer_spec import Activation, LayerSpec, Layout

_RELU = Activation.RELU
_NONE = Activation.NONE


def _layer(
    name: str,
    channels: int,
    size: int,
    filters: int,
    kernel: int | tuple[int, int],
    stride: int = 1,
    *,
    groups: int = 1,
    activation: Activation = _RELU,
    bias: bool = True,
    pad: int | None = None,
    dilation: int = 1,
) -> LayerSpec:
    rows, columns = (kernel, kernel) if isinstance(kernel, int) else kernel
    above = dilation * (rows // 2) if pad is None else pad
    left = dilation * (columns // 2) if pad is None else pad
    return LayerSpec(
        channels,
        size,
        size,
        filters,
        kernel_height=rows,
        kernel_width=columns,
        stride_y=stride,
        stride_x=stride,
        pad_top=above,
        pad_left=left,
        pad_bottom=above,
        pad_right=left,
        name=name,
        groups=groups,
        dilation_y=dilation,
        dilation_x=dilation,
        bias=bias,
        activation=activation,
        layout=Layout.NCHW,
    )


#: Of each network the convolutions that differ most from each other.
LAYERS: tuple[LayerSpec, ...] = (
    _layer("resnet18/conv2", 64, 56, 64, 3),
    _layer("resnet18/conv3", 64, 56, 128, 3, 2),
    _layer("resnet18/conv4", 256, 14, 256, 3),
    _layer("resnet18/conv5", 512, 7, 512, 3),
    _layer("resnet18/down4", 128, 28, 256, 1, 2, activation=_NONE),
    _layer("resnext50/group2", 128, 56, 128, 3, groups=32),
    _layer("resnext50/group4", 512, 14, 512, 3, groups=32),
    _layer("resnext50/point3", 512, 28, 256, 1),
    _layer("densenet121/first", 3, 224, 64, 7, 2, bias=False, activation=_NONE),
    _layer("densenet121/grow1", 128, 56, 32, 3, bias=False, activation=_NONE),
    _layer("densenet121/grow3", 128, 14, 32, 3, bias=False, activation=_NONE),
    _layer("densenet121/point3", 640, 14, 128, 1, bias=False, activation=_NONE),
    _layer("efficientnet_b0/depth3", 144, 56, 144, 5, 2, groups=144),
    _layer("efficientnet_b0/depth6", 672, 14, 672, 5, groups=672),
    _layer("efficientnet_b0/expand5", 80, 14, 480, 1),
    _layer("efficientnet_b0/project6", 672, 14, 112, 1, activation=_NONE),
    _layer("inception_v3/first", 3, 299, 32, 3, 2, pad=0),
    _layer("inception_v3/5x5", 48, 35, 64, 5),
    _layer("inception_v3/1x7", 160, 17, 160, (1, 7)),
    _layer("inception_v3/7x1", 160, 17, 192, (7, 1)),
    _layer("inception_v3/reduce", 288, 35, 384, 3, 2, pad=0),
    _layer("alexnet/first", 3, 224, 64, 11, 4, pad=2),
    _layer("alexnet/second", 64, 27, 192, 5),
    _layer("alexnet/fourth", 384, 13, 256, 3),
    _layer("yolov3/second", 32, 416, 64, 3, 2, activation=Activation.LEAKY_RELU),
    _layer("yolov3/point5", 512, 26, 256, 1, activation=Activation.LEAKY_RELU),
    _layer("yolov3/last", 512, 13, 1024, 3, activation=Activation.LEAKY_RELU),
    _layer("unet/contract2", 64, 284, 128, 3, pad=0),
    _layer("unet/bottom", 512, 32, 1024, 3, pad=0),
    _layer("convnext_t/depth1", 96, 56, 96, 7, groups=96, activation=_NONE),
    _layer("convnext_t/depth3", 384, 14, 384, 7, groups=384, activation=_NONE),
    _layer("convnext_t/patch", 96, 56, 192, 2, 2, activation=_NONE, pad=0),
    _layer("mobilenet_v3/depth2", 64, 112, 64, 3, 2, groups=64),
    _layer("mobilenet_v3/expand9", 80, 14, 200, 1),
    _layer("shufflenet/depth2", 116, 28, 116, 3, groups=116, activation=_NONE),
    _layer("deeplab/atrous12", 256, 33, 256, 3, dilation=12),
    _layer("fcn/head", 512, 28, 512, 3, dilation=2),
    _layer("vgg19/conv3_4", 256, 56, 256, 3, activation=_RELU),
    _layer("darknet19/point", 512, 14, 256, 1, activation=Activation.LEAKY_RELU),
    _layer("regnet/group3", 240, 28, 240, 3, groups=10),
)


def drawn(count: int, seed: int) -> tuple[LayerSpec, ...]:
    """So many different layers, in the order of the draw."""
    return tuple(Random(seed).sample(LAYERS, min(count, len(LAYERS))))


def named(names: list[str]) -> tuple[LayerSpec, ...]:
    """Layers by name; KeyError for another name."""
    by_name = {layer.name: layer for layer in LAYERS}
    return tuple(by_name[name] for name in names)
