"""A layer's arrays in the layout that libraries take, and their results in the layer's own.

Libraries take images [N][C][H][W], filters [M][C / groups][kh][kw], and give [N][M][OH][OW].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.layer_spec import DType, LayerSpec, Layout
from mapper.programs.common import IMAGE, WEIGHTS
from nestmap.tuning.reference import Workload

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
    image, weights = workload.inputs[IMAGE], workload.inputs[WEIGHTS]
    if layer.layout is Layout.NHWC:
        image = image.reshape(-1, *image.shape[-3:]).transpose(0, 3, 1, 2)
        weights = weights.transpose(0, 3, 1, 2)
    return Operands(
        np.ascontiguousarray(image), np.ascontiguousarray(weights), workload.inputs.get(BIAS)
    )


def own_layout(layer: LayerSpec, result: Array) -> Array:
    """A library's result [N][M][OH][OW] in the shape of the layer's own output."""
    if layer.layout is Layout.NHWC:
        result = result.transpose(0, 2, 3, 1)
        return result if layer.batch > 1 else result[0]
    return result


def library_tolerance(layer: LayerSpec) -> float:
    """The relative error (2-norm) above which a library computes something else.

    It sums in an order of its own, perhaps by another algorithm; TF32 alone makes 3e-4.
    """
    return 1e-4 if layer.dtype is DType.FLOAT32 else 5e-3
