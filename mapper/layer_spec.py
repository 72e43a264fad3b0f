"""Convolution layers: their sizes, names and arithmetic (docs/layers.md).

Names follow Table 3 of "Auto-Generation of Specialized Direct Convolutions for Mobile
GPUs" (GPGPU'20): ``vgg16/0`` to ``vgg16/28``, the numbers of the network's layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from math import isfinite
from typing import Any

from mapper.errors import InputError, Problem

MAX_SIZE = 1 << 20
DEFAULT_SLOPE = 0.01


class Activation(StrEnum):
    """What is applied to every element of the result; ``slope`` is that of negative elements.

    RELU max(x, 0), RELU6 min(max(x, 0), 6), LEAKY_RELU max(x, slope * x), SIGMOID
    1 / (1 + exp(-x)).
    """

    NONE = "none"
    RELU = "relu"
    RELU6 = "relu6"
    LEAKY_RELU = "leaky_relu"
    SIGMOID = "sigmoid"


class DType(StrEnum):
    """How elements of image, weights, bias and result are stored; sums are 32-bit floats."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"

    @property
    def bytes(self) -> int:
        """Bytes of one element in global or local memory."""
        return 2 if self is DType.FLOAT16 else 4


class Layout(StrEnum):
    """The order of dimensions at the edges: N images, C channels, H rows, W columns.

    NCHW16C is oneDNN's ``nChw16c``: blocks of 16 channels, within which the channels of a
    pixel lie together. Fewer than 16 make one block, which is not filled up.
    """

    NHWC = "NHWC"
    NCHW = "NCHW"
    NCHW16C = "NCHW16c"


CHANNEL_BLOCK = 16
"""Channels of a block of :attr:`Layout.NCHW16C`."""

MAX_NAME = 1_000
"""Characters of a layer's name in a document."""


def block_of(channels: int) -> int:
    """Channels of each block of so many; they must be :func:`in_blocks`."""
    return min(CHANNEL_BLOCK, channels)


def in_blocks(channels: int) -> bool:
    """Whether so many channels are whole blocks of one length."""
    return channels % block_of(channels) == 0


_CHOICES: dict[str, type[StrEnum]] = {"activation": Activation, "dtype": DType, "layout": Layout}
_NOT_SIZES = frozenset({"name", "bias", "activation_slope", *_CHOICES})


@dataclass(frozen=True, slots=True, init=False)
class LayerSpec:
    """One 2-D convolution. All sizes are elements; a 1-D one has height and kernel height 1.

    NHWC: image [batch][height][width][channels], weights [filters][kernel_height]
    [kernel_width][channels / groups], result [batch][output_height][output_width][filters],
    where [batch] is left out for one image. NCHW: image [batch][channels][height][width],
    weights [filters][channels / groups][kernel_height][kernel_width], result [batch][filters]
    [output_height][output_width]. NCHW16c: weights as in NCHW, image
    [batch][channels / 16][height][width][16], result [batch][filters / 16][output_height]
    [output_width][16]; channels and filters are multiples of 16, or fewer, which are a block
    of their own length. With ``bias`` there is one more input, [filters].

    Filter m reads the channels of group m / (filters / groups). Kernel position (i, j) of
    output (y, x) lies at row y * stride_y + i * dilation_y - pad_top and column x * stride_x
    + j * dilation_x - pad_left; what lies outside is 0.
    """

    channels: int
    height: int
    width: int
    filters: int
    kernel_height: int
    kernel_width: int
    stride_y: int
    stride_x: int
    pad_top: int
    pad_left: int
    pad_bottom: int
    pad_right: int
    name: str
    batch: int
    groups: int
    dilation_y: int
    dilation_x: int
    bias: bool
    activation: Activation
    activation_slope: float
    dtype: DType
    layout: Layout

    def __init__(
        self,
        channels: int,
        height: int,
        width: int,
        filters: int,
        kernel_height: int = 3,
        kernel_width: int = 3,
        stride: int | None = None,
        pad_top: int = 0,
        pad_left: int = 0,
        pad_bottom: int = 0,
        pad_right: int = 0,
        name: str = "layer",
        *,
        stride_y: int = 1,
        stride_x: int = 1,
        batch: int = 1,
        groups: int = 1,
        dilation_y: int = 1,
        dilation_x: int = 1,
        bias: bool = False,
        activation: str = Activation.NONE,
        activation_slope: float = DEFAULT_SLOPE,
        dtype: str = DType.FLOAT32,
        layout: str = Layout.NHWC,
    ) -> None:
        """Check everything; ``stride`` sets both strides, whatever they are.

        Raises InputError that names each field with what was found and what is allowed.
        """
        given: dict[str, Any] = {
            "channels": channels,
            "height": height,
            "width": width,
            "filters": filters,
            "kernel_height": kernel_height,
            "kernel_width": kernel_width,
            "stride_y": stride_y if stride is None else stride,
            "stride_x": stride_x if stride is None else stride,
            "pad_top": pad_top,
            "pad_left": pad_left,
            "pad_bottom": pad_bottom,
            "pad_right": pad_right,
            "name": name,
            "batch": batch,
            "groups": groups,
            "dilation_y": dilation_y,
            "dilation_x": dilation_x,
            "bias": bias,
            "activation": activation,
            "activation_slope": activation_slope,
            "dtype": dtype,
            "layout": layout,
        }
        problems = [*_value_problems(given)]
        if stride is not None:
            # One mistake in what sets both is one problem.
            problems = [
                replace(problem, path="layer.stride")
                if problem.path == "layer.stride_y"
                else problem
                for problem in problems
                if problem.path != "layer.stride_x"
            ]
        for field, value in given.items():
            kind = _CHOICES.get(field)
            known = kind is not None and value in tuple(kind)
            object.__setattr__(self, field, kind(value) if kind and known else value)
        if not problems:
            problems = [*self._shape_problems()]
        if problems:
            raise InputError(problems)

    @staticmethod
    def one_dimensional(
        channels: int,
        length: int,
        filters: int,
        kernel: int = 3,
        *,
        stride: int = 1,
        dilation: int = 1,
        pad_left: int = 0,
        pad_right: int = 0,
        **others: Any,
    ) -> LayerSpec:
        """A 1-D convolution: one row, under a kernel of one row. ``others`` as in a layer.

        Raises InputError as a layer does.
        """
        return LayerSpec(
            channels,
            1,
            length,
            filters,
            1,
            kernel,
            stride_x=stride,
            dilation_x=dilation,
            pad_left=pad_left,
            pad_right=pad_right,
            **others,
        )

    def _shape_problems(self) -> Iterator[Problem]:
        """What is wrong with fields that are right by themselves."""
        for axis, extent, padded in (
            ("height", self.window_height, self.padded_height),
            ("width", self.window_width, self.padded_width),
        ):
            if extent > padded:
                dilated = "" if extent == getattr(self, f"kernel_{axis}") else ", dilated,"
                yield Problem(
                    f"layer.kernel_{axis}",
                    f"the kernel{dilated} is larger than the padded input {axis}",
                    str(extent),
                    f"at most {padded}",
                )
        for field in ("channels", "filters"):
            if getattr(self, field) % self.groups:
                yield Problem(
                    "layer.groups",
                    f"does not divide the {field}",
                    str(self.groups),
                    f"a divisor of {self.channels} channels and of {self.filters} filters",
                )
            if self.layout is Layout.NCHW16C and not in_blocks(getattr(self, field)):
                yield Problem(
                    f"layer.{field}",
                    f"are no whole blocks of the layout {Layout.NCHW16C}",
                    str(getattr(self, field)),
                    f"a multiple of {CHANNEL_BLOCK}, or fewer than {CHANNEL_BLOCK}",
                    f"the layout {Layout.NHWC} or {Layout.NCHW}",
                )
        if self.activation_slope != DEFAULT_SLOPE and self.activation is not Activation.LEAKY_RELU:
            yield Problem(
                "layer.activation_slope",
                f"the activation {self.activation} has no slope",
                str(self.activation_slope),
                f"{DEFAULT_SLOPE}, or the activation {Activation.LEAKY_RELU}",
            )

    @property
    def stride(self) -> int:
        """The stride of rows and columns; InputError where these have strides of their own."""
        if self.stride_y != self.stride_x:
            raise InputError(
                Problem(
                    "layer.stride",
                    "rows and columns have strides of their own",
                    f"{self.stride_y} and {self.stride_x}",
                    "equal strides",
                )
            )
        return self.stride_y

    @property
    def window_height(self) -> int:
        """Rows from the first to the last that a window touches."""
        return (self.kernel_height - 1) * self.dilation_y + 1

    @property
    def window_width(self) -> int:
        """Columns from the first to the last that a window touches."""
        return (self.kernel_width - 1) * self.dilation_x + 1

    @property
    def padded_height(self) -> int:
        """Rows with the layer's own padding."""
        return self.height + self.pad_top + self.pad_bottom

    @property
    def padded_width(self) -> int:
        """Columns with the layer's own padding."""
        return self.width + self.pad_left + self.pad_right

    @property
    def output_height(self) -> int:
        """Rows of the result."""
        return (self.padded_height - self.window_height) // self.stride_y + 1

    @property
    def output_width(self) -> int:
        """Columns of the result."""
        return (self.padded_width - self.window_width) // self.stride_x + 1

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Lengths of the image, outermost first."""
        if self.layout is Layout.NCHW:
            return (self.batch, self.channels, self.height, self.width)
        if self.layout is Layout.NCHW16C:
            block = block_of(self.channels)
            return (self.batch, self.channels // block, self.height, self.width, block)
        return (*self._images, self.height, self.width, self.channels)

    @property
    def weights_shape(self) -> tuple[int, ...]:
        """Lengths of the weights, outermost first."""
        kernel, channels = (self.kernel_height, self.kernel_width), self.channels // self.groups
        if self.layout is Layout.NHWC:
            return (self.filters, *kernel, channels)
        return (self.filters, channels, *kernel)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Lengths of the result, outermost first."""
        if self.layout is Layout.NCHW:
            return (self.batch, self.filters, self.output_height, self.output_width)
        if self.layout is Layout.NCHW16C:
            block = block_of(self.filters)
            rows, columns = self.output_height, self.output_width
            return (self.batch, self.filters // block, rows, columns, block)
        return (*self._images, self.output_height, self.output_width, self.filters)

    @property
    def _images(self) -> tuple[int, ...]:
        """NHWC has a dimension of images where there are several."""
        return (self.batch,) if self.batch > 1 else ()

    @property
    def accumulation_length(self) -> int:
        """Products summed for one output element."""
        return self.channels // self.groups * self.kernel_height * self.kernel_width

    @property
    def macs(self) -> int:
        """Multiply-adds, those with padding counted too."""
        outputs = self.batch * self.filters * self.output_height * self.output_width
        return self.accumulation_length * outputs

    @property
    def operations(self) -> int:
        """Floating-point operations, a multiply and an add each counted.

        Bias and activation are not: they are a few for each output element.
        """
        return 2 * self.macs

    def scaled(self, *, spatial: int, channels: int, filters: int) -> LayerSpec:
        """The same layer cut to about these sizes, for slow judges and slow mappings.

        Rows and columns stay enough for one window; groups are left out where one of each
        group's channels and filters are still too many. Where channels lie in blocks, whole
        blocks stay. Raises InputError for sizes below 1.
        """
        name = f"{self.name}@{spatial}x{channels}x{filters}"
        of_group = min(self.channels // self.groups, channels)
        for_group = min(self.filters // self.groups, filters)
        groups = min(self.groups, max(1, min(channels // of_group, filters // for_group)))
        if self.layout is Layout.NCHW16C:
            groups -= groups % block_of(groups)
            of_group, for_group = (
                next(each for each in range(most, 0, -1) if in_blocks(each * groups))
                for most in (of_group, for_group)
            )
        return replace(
            self,
            height=min(self.height, max(spatial, self.window_height)),
            width=min(self.width, max(spatial, self.window_width)),
            channels=of_group * groups,
            filters=for_group * groups,
            groups=groups,
            name=name,
        )

    def to_json(self) -> dict[str, Any]:
        """``nestmap/layer/2``, every field."""
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        texts = {field: str(values[field]) for field in _CHOICES}
        return {"schema": LAYER_SCHEMA, **values, **texts}

    @staticmethod
    def from_json(value: dict[str, Any]) -> LayerSpec:
        """Read ``nestmap/layer/2`` or ``/1``; InputError names every unknown or missing field.

        ``stride`` and ``dilation`` set both of theirs. ``length`` (with ``kernel``) instead of
        ``height`` and ``width`` makes a 1-D convolution.
        """
        problems = [*_document_problems(value)]
        known = {field.name for field in fields(LayerSpec)}
        given = {key: value[key] for key in value if key in known}
        for short, both in _SHORTHANDS.items():
            if short in value:
                given |= dict.fromkeys(both, value[short])
        if "length" in value:
            given |= {"height": 1, "width": value["length"], "kernel_height": 1}
            given["kernel_width"] = value.get("kernel", 3)
        if all(key in given for key in _REQUIRED):
            try:
                layer = LayerSpec(**given)
            except InputError as error:
                problems += error.problems
            else:
                if not problems:
                    return layer
        raise InputError(problems)


def plainest(layer: LayerSpec) -> LayerSpec:
    """The layer without its name in its plainest spelling: layers that compute the same from arrays
    that are the same in memory are equal then, so that a kernel of one is a kernel of the other.

    Channels beside a single pixel lie alike in all layouts, a 1x1 kernel does not tell rows from
    images, and a dimension of 1 may stand anywhere.
    """
    plain = replace(layer, name="")
    plain = replace(plain, **_one_step(plain, "y"), **_one_step(plain, "x"))
    if plain.layout is not Layout.NHWC and _lies_alike(plain):
        plain = replace(plain, layout=Layout.NHWC)
    padding = (plain.pad_top, plain.pad_left, plain.pad_bottom, plain.pad_right)
    one = (plain.kernel_height, plain.kernel_width, plain.stride_y, plain.stride_x)
    if one == (1, 1, 1, 1) and not any(padding):
        images = plain.batch if plain.layout is Layout.NHWC else 1
        pixels = images * plain.height * plain.width
        if pixels <= MAX_SIZE:
            return replace(plain, batch=plain.batch // images, height=1, width=pixels)
    if (plain.width, plain.kernel_width, plain.pad_left, plain.pad_right) == (1, 1, 0, 0):
        return replace(
            plain, height=1, width=plain.height, kernel_height=1, kernel_width=plain.kernel_height,
            stride_y=1, stride_x=plain.stride_y, dilation_y=1, dilation_x=plain.dilation_y,
            pad_top=0, pad_bottom=0, pad_left=plain.pad_top, pad_right=plain.pad_bottom,
        )  # fmt: skip
    return plain


def _one_step(layer: LayerSpec, axis: str) -> dict[str, Any]:
    """What may be said by 1 along an axis: the dilation of one tap, the stride of one output that
    has no rest."""
    size = "height" if axis == "y" else "width"
    found: dict[str, Any] = {}
    if getattr(layer, f"kernel_{size}") == 1:
        found[f"dilation_{axis}"] = 1
    if getattr(layer, f"padded_{size}") == getattr(layer, f"window_{size}"):
        found[f"stride_{axis}"] = 1
    return found


def _lies_alike(layer: LayerSpec) -> bool:
    """Whether image, weights and result lie in memory as in NHWC."""
    most = CHANNEL_BLOCK if layer.layout is Layout.NCHW16C else 1
    image = layer.channels <= most or layer.height * layer.width == 1
    result = layer.filters <= most or layer.output_height * layer.output_width == 1
    taps = layer.kernel_height * layer.kernel_width
    return image and result and (taps == 1 or layer.channels == layer.groups)


LAYER_SCHEMA = "nestmap/layer/2"
FIRST_LAYER_SCHEMA = "nestmap/layer/1"
_REQUIRED = ("channels", "height", "width", "filters")
_SHORTHANDS = {"stride": ("stride_y", "stride_x"), "dilation": ("dilation_y", "dilation_x")}
#: Of a 1-D convolution, with what is said by them.
_LINE_FIELDS = ("length", "kernel")
_SAID_BY_LINE = ("height", "width", "kernel_height", "kernel_width")
_FIRST_FIELDS = frozenset(
    {*_REQUIRED, "kernel_height", "kernel_width", "stride", "name"}
    | {f"pad_{side}" for side in ("top", "left", "bottom", "right")}
)
#: Fields by which one would say that a layer has a third dimension.
_THIRD_DIMENSION = ("depth", "kernel_depth", "stride_z", "pad_front", "pad_back", "dilation_z")


def _value_problems(given: dict[str, Any]) -> Iterator[Problem]:
    """Fields that are wrong by themselves."""
    for field, value in given.items():
        path = f"layer.{field}"
        if field in _CHOICES:
            allowed = tuple(str(choice) for choice in _CHOICES[field])
            if not isinstance(value, str) or value not in allowed:
                yield Problem(path, "is not one of the known", repr(value)[:80], ", ".join(allowed))
        elif field == "bias":
            if not isinstance(value, bool):
                yield Problem(path, "is not a truth value", repr(value)[:80], "true or false")
        elif field == "activation_slope":
            # Between these max(x, slope * x) is what the slope means.
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and isfinite(value) and 0 <= value <= 1):
                yield Problem(path, "is not a slope", repr(value)[:80], "a number from 0 to 1")
        elif field not in _NOT_SIZES:
            low = 0 if field.startswith("pad_") else 1
            # bool is an int to Python, and a layer of height true is a mistake.
            if isinstance(value, bool) or not isinstance(value, int):
                yield Problem(path, "is not an integer", repr(value)[:80], "an integer")
            elif not low <= value <= MAX_SIZE:
                yield Problem(path, "is out of range", str(value)[:80], f"{low} to {MAX_SIZE}")


def _document_problems(value: dict[str, Any]) -> Iterator[Problem]:
    """What is wrong with the fields of a document, whatever they hold."""
    schema = value.get("schema", LAYER_SCHEMA)
    schemas = (LAYER_SCHEMA, FIRST_LAYER_SCHEMA)
    if schema not in schemas:
        yield Problem("/schema", "unknown schema", repr(schema)[:80], " or ".join(schemas))
    known = {field.name for field in fields(LayerSpec)} | _SHORTHANDS.keys() | {*_LINE_FIELDS}
    if schema == FIRST_LAYER_SCHEMA:
        known = set(_FIRST_FIELDS)
    for key in value:
        if key in known or key == "schema":
            continue
        if key in _THIRD_DIMENSION:
            yield Problem(
                f"/{key}", "3-D convolutions are not done", key, "height and width, or length"
            )
            continue
        later = schema == FIRST_LAYER_SCHEMA and key in LayerSpec.__dataclass_fields__
        remedy = f"the schema {LAYER_SCHEMA}" if later else ""
        yield Problem(f"/{key}", "unknown field", "", ", ".join(sorted(known)), remedy)
    for short, both in _SHORTHANDS.items():
        for field in both:
            if short in value and field in value:
                yield Problem(f"/{field}", f"is said by {short} too", repr(value[field])[:80])
    if "length" in value:
        for field in _SAID_BY_LINE:
            if field in value:
                yield Problem(f"/{field}", "is said by length and kernel", repr(value[field])[:80])
    elif "kernel" in value:
        yield Problem("/kernel", "goes with length", "", "kernel_height and kernel_width")
    for key in _REQUIRED:
        if key not in value and not ("length" in value and key in _SAID_BY_LINE):
            yield Problem(f"/{key}", "missing field")
    name = value.get("name", "")
    if not isinstance(name, str):
        yield Problem("/name", "is not a text", repr(name)[:80])
    elif len(name) > MAX_NAME:
        yield Problem("/name", "is too long", f"{len(name)} characters", f"{MAX_NAME} characters")


def _vgg(number: int, channels: int, size: int, filters: int) -> LayerSpec:
    return LayerSpec(channels, size, size, filters, 3, 3, 1, 1, 1, 1, 1, name=f"vgg16/{number}")


# Table 3 of the GPGPU'20 paper: several layers of the network share one configuration.
VGG16: dict[str, LayerSpec] = {
    f"vgg16/{number}": _vgg(number, channels, size, filters)
    for numbers, channels, size, filters in (
        ((0,), 3, 224, 64),
        ((2,), 64, 224, 64),
        ((5,), 64, 112, 128),
        ((7,), 128, 112, 128),
        ((10,), 128, 56, 256),
        ((12, 14), 256, 56, 256),
        ((17,), 256, 28, 512),
        ((19, 21), 512, 28, 512),
        ((24, 26, 28), 512, 14, 512),
    )
    for number in numbers
}

VGG16_UNIQUE: tuple[str, ...] = tuple(
    f"vgg16/{number}" for number in (0, 2, 5, 7, 10, 12, 17, 19, 24)
)
