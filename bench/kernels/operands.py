"""A layer's arrays in the layout that libraries take, and their results in the layer's own.

Libraries take images [N][C][H][W], filters [M][C / groups][kh][kw], and give [N][M][OH][OW].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.layer_spec import DType, LayerSpec
from mapper.programs.common import IMAGE, WEIGHTS
from nestmap.tuning.reference import (
    Workload,
    channels_last_image,
    channels_last_weights,
    from_channels_last,
)

Array = NDArray[Any]
BIAS = "bias"


@dataclass(frozen=True, slots=True)
class Operands:
    """Contiguous arrays: image [N][C][H][W], weights [M][C / groups][kh][kw], bias [M] or none."""

    image: Array
    weights: Array
    bias: Array | None


def library_operands(layer: LayerSpec, workload: Workload) -> Operands:
    """The inputs of a workload as libraries take them."""
    image = channels_last_image(layer, workload.inputs[IMAGE]).transpose(0, 3, 1, 2)
    weights = channels_last_weights(layer, workload.inputs[WEIGHTS]).transpose(0, 3, 1, 2)
    return Operands(
        np.ascontiguousarray(image), np.ascontiguousarray(weights), workload.inputs.get(BIAS)
    )


def own_layout(layer: LayerSpec, result: Array) -> Array:
    """A library's result [N][M][OH][OW] in the shape of the layer's own output."""
    return from_channels_last(layer, result.transpose(0, 2, 3, 1))


def library_tolerance(layer: LayerSpec) -> float:
    """The relative error (2-norm) above which a library computes something else.

    It sums in an order of its own, perhaps by another algorithm; TF32 alone makes 3e-4.
    """
    return 1e-4 if layer.dtype is DType.FLOAT32 else 5e-3
