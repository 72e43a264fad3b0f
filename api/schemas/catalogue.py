"""Layers, profiles, variants and layer sets."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from api.schemas.types import NO_NUL
from mapper.device_profile import DeviceProfile
from mapper.layer_sets import LayerSet
from mapper.layer_spec import MAX_NAME, MAX_SIZE, Activation, DType, LayerSpec, Layout

_SIZE = {"type": "integer", "minimum": 1, "maximum": MAX_SIZE}
_KERNEL = {**_SIZE, "default": 3}
_ONE = {**_SIZE, "default": 1}
_PADDING = {"type": "integer", "minimum": 0, "maximum": MAX_SIZE}
_SAID_BY_LENGTH = ("height", "width", "kernel_height", "kernel_width")
LAYER_EXAMPLE: dict[str, Any] = {
    "schema": "nestmap/layer/2",
    "name": "conv3",
    "channels": 64,
    "height": 56,
    "width": 56,
    "filters": 64,
    "pad_top": 1,
    "pad_left": 1,
    "pad_bottom": 1,
    "pad_right": 1,
}

#: The layer's own reader checks the value: it names every field that is wrong at once.
LayerValue = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "title": "Layer",
            "description": "One convolution, `nestmap/layer/2` or `/1` (docs/layers.md).",
            "type": "object",
            "properties": {
                "schema": {"enum": ["nestmap/layer/2", "nestmap/layer/1"]},
                "name": {"type": "string", "pattern": NO_NUL, "maxLength": MAX_NAME},
                **dict.fromkeys(("channels", "height", "width", "filters"), _SIZE),
                **dict.fromkeys(("kernel_height", "kernel_width"), _KERNEL),
                **dict.fromkeys(
                    ("stride", "stride_y", "stride_x", "dilation", "dilation_y", "dilation_x"),
                    _SIZE,
                ),
                **dict.fromkeys(("pad_top", "pad_left", "pad_bottom", "pad_right"), _PADDING),
                **dict.fromkeys(("batch", "groups"), _ONE),
                **dict.fromkeys(("length", "kernel"), _SIZE),
                "bias": {"type": "boolean", "default": False},
                "activation": {"enum": [a.value for a in Activation], "default": "none"},
                "activation_slope": {"type": "number", "minimum": 0, "maximum": 1},
                "dtype": {"enum": [d.value for d in DType], "default": "float32"},
                "layout": {"enum": [choice.value for choice in Layout], "default": "NHWC"},
            },
            "required": ["channels", "filters"],
            "anyOf": [{"required": ["height", "width"]}, {"required": ["length"]}],
            "dependentSchemas": {
                "stride": {"properties": {"stride_y": False, "stride_x": False}},
                "dilation": {"properties": {"dilation_y": False, "dilation_x": False}},
                "length": {"properties": dict.fromkeys(_SAID_BY_LENGTH, False)},
                "kernel": {"required": ["length"]},
            },
            "additionalProperties": False,
            "examples": [LAYER_EXAMPLE],
        }
    ),
]


class LayerFacts(BaseModel):
    """A layer with what follows from its sizes."""

    name: str
    layer: dict[str, Any] = Field(description="`nestmap/layer/2`, every field")
    image_shape: list[int]
    weights_shape: list[int]
    output_shape: list[int]
    operations: int = Field(description="Floating-point operations: a multiply and an add each")

    @classmethod
    def of(cls, layer: LayerSpec) -> LayerFacts:
        """The facts of a layer."""
        return cls(
            name=layer.name,
            layer=layer.to_json(),
            image_shape=list(layer.image_shape),
            weights_shape=list(layer.weights_shape),
            output_shape=list(layer.output_shape),
            operations=layer.operations,
        )


class ListedLayerDocument(LayerFacts):
    """A layer of a set; `count` is how often it stands in the network."""

    count: int
    where: str


class LayerSetSummary(BaseModel):
    """A named list of layers."""

    name: str
    title: str
    layers: int


class LayerSetDocument(BaseModel):
    """A named list of layers with its source."""

    name: str
    title: str
    source: str
    published: dict[str, Any]
    layers: list[ListedLayerDocument]

    @classmethod
    def of(cls, found: LayerSet) -> LayerSetDocument:
        """The document of a set."""
        return cls(
            name=found.name,
            title=found.title,
            source=found.source,
            published=found.published,
            layers=[
                ListedLayerDocument(
                    **LayerFacts.of(row.layer).model_dump(), count=row.count, where=row.where
                )
                for row in found.layers
            ],
        )


class ProfileDocument(BaseModel):
    """The limits of a device, as the solver respects them. Sizes are bytes."""

    model_config = ConfigDict(from_attributes=True)

    name: str
    source: str
    max_work_group_size: int
    max_work_item_sizes: list[int]
    local_bytes: int
    private_bytes: int
    kernel_private_bytes: int | None
    max_alloc_bytes: int
    global_bytes: int
    compute_units: int
    vector_widths: list[int]
    half_precision: bool
    target: str
    lanes: int | None
    vector_registers: int | None
    vector_bytes: int | None
    local_memory: str

    @classmethod
    def of(cls, profile: DeviceProfile) -> ProfileDocument:
        """The document of a profile."""
        return cls.model_validate(profile)


class VariantDocument(BaseModel):
    """One way to compute a layer."""

    name: str
    description: str
