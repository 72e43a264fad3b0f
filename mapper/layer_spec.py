"""Convolution layers: their sizes, names and arithmetic.

Names follow Table 3 of "Auto-Generation of Specialized Direct Convolutions for Mobile
GPUs" (GPGPU'20): ``vgg16/0`` to ``vgg16/28``, the numbers of the network's layers.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from mapper.errors import InputError, Problem

MAX_SIZE = 1 << 20


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One 2-D convolution, batch 1, fp32. All sizes are elements.

    Input [height][width][channels], weights [filters][kernel_height][kernel_width]
    [channels], output [output_height][output_width][filters].
    """

    channels: int
    height: int
    width: int
    filters: int
    kernel_height: int = 3
    kernel_width: int = 3
    stride: int = 1
    pad_top: int = 0
    pad_left: int = 0
    pad_bottom: int = 0
    pad_right: int = 0
    name: str = "layer"

    def __post_init__(self) -> None:
        problems: list[Problem] = []
        for field in fields(self):
            if field.name == "name":
                continue
            value: Any = getattr(self, field.name)
            low = 0 if field.name.startswith("pad_") else 1
            # bool is an int to Python, and a layer of height true is a mistake.
            if isinstance(value, bool) or not isinstance(value, int):
                problems.append(
                    Problem(f"layer.{field.name}", "is not an integer", repr(value), "an integer")
                )
            elif not low <= value <= MAX_SIZE:
                problems.append(
                    Problem(
                        f"layer.{field.name}", "is out of range", str(value), f"{low} to {MAX_SIZE}"
                    )
                )
        if problems:
            raise InputError(problems)
        for axis, kernel, padded in (
            ("height", self.kernel_height, self.padded_height),
            ("width", self.kernel_width, self.padded_width),
        ):
            if kernel > padded:
                problems.append(
                    Problem(
                        f"layer.kernel_{axis}",
                        f"the kernel is larger than the padded input {axis}",
                        str(kernel),
                        f"at most {padded}",
                    )
                )
        for key in ("pad_top", "pad_bottom", "pad_left", "pad_right"):
            kernel = self.kernel_height if key in ("pad_top", "pad_bottom") else self.kernel_width
            if getattr(self, key) >= kernel:
                problems.append(
                    Problem(
                        f"layer.{key}",
                        "whole windows would lie in the padding",
                        str(getattr(self, key)),
                        f"less than the kernel, {kernel}",
                    )
                )
        if problems:
            raise InputError(problems)

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
        return (self.padded_height - self.kernel_height) // self.stride + 1

    @property
    def output_width(self) -> int:
        """Columns of the result."""
        return (self.padded_width - self.kernel_width) // self.stride + 1

    @property
    def accumulation_length(self) -> int:
        """Products summed for one output element."""
        return self.channels * self.kernel_height * self.kernel_width

    @property
    def operations(self) -> int:
        """Floating-point operations, a multiply and an add each counted."""
        return 2 * self.accumulation_length * self.filters * self.output_height * self.output_width

    def scaled(self, *, spatial: int, channels: int, filters: int) -> LayerSpec:
        """The same layer cut to at most these sizes, for slow judges and slow mappings."""
        return replace(
            self,
            height=min(self.height, spatial),
            width=min(self.width, spatial),
            channels=min(self.channels, channels),
            filters=min(self.filters, filters),
            name=f"{self.name}@{spatial}x{channels}x{filters}",
        )

    def to_json(self) -> dict[str, Any]:
        """``nestmap/layer/1``."""
        return {
            "schema": "nestmap/layer/1",
            **{field.name: getattr(self, field.name) for field in fields(self)},
        }

    @staticmethod
    def from_json(value: dict[str, Any]) -> LayerSpec:
        """Read ``nestmap/layer/1``; InputError names every unknown or missing field."""
        known = {field.name for field in fields(LayerSpec)}
        required = ("channels", "height", "width", "filters")
        problems = [
            Problem(f"/{key}", "unknown field", allowed=", ".join(sorted(known)))
            for key in value
            if key not in known and key != "schema"
        ]
        problems += [Problem(f"/{key}", "missing field") for key in required if key not in value]
        if value.get("schema", "nestmap/layer/1") != "nestmap/layer/1":
            problems.append(
                Problem("/schema", "unknown schema", repr(value["schema"]), "nestmap/layer/1")
            )
        if not isinstance(value.get("name", ""), str):
            problems.append(Problem("/name", "is not a text", repr(value["name"])))
        sizes = {key: value[key] for key in value if key in known}
        if all(key in value for key in required):
            try:
                layer = LayerSpec(**sizes)
            except InputError as error:
                problems += error.problems
            else:
                if not problems:
                    return layer
        raise InputError(problems)


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


def named_layer(name: str) -> LayerSpec:
    """A layer by name; InputError lists the names."""
    if name not in VGG16:
        raise InputError(Problem("layer", "no layer of this name", repr(name), ", ".join(VGG16)))
    return VGG16[name]
