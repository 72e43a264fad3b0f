"""Programs that compute a convolution layer, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mapper.ast_model.nodes import Program
from mapper.errors import InputError, Problem
from mapper.layer_spec import LayerSpec
from mapper.programs.direct_convolution import direct_convolution
from mapper.programs.high_level import high_level_convolution
from mapper.programs.partial_convolution import partial_convolution


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to compute a layer; ``build`` makes its program."""

    name: str
    description: str
    build: Callable[[LayerSpec], Program]


VARIANTS: dict[str, Variant] = {
    v.name: v
    for v in (
        Variant(
            "direct",
            "tiled direct convolution, cached in registers (CC'22); no extra global memory",
            direct_convolution,
        ),
        Variant(
            "partial",
            "pad, tiled partial convolution, reduction, crop (GPGPU'20)",
            partial_convolution,
        ),
        Variant(
            "high-level",
            "one output element a loop iteration (GPGPU'20, Listing 3); no tuning parameters",
            high_level_convolution,
        ),
    )
}

DEFAULT_VARIANT = "direct"


def variant_program(layer: LayerSpec, variant: str) -> Program:
    """The program of a layer in a variant; InputError lists the variants."""
    if variant not in VARIANTS:
        raise InputError(
            Problem("variant", "no variant of this name", repr(variant), ", ".join(VARIANTS))
        )
    return VARIANTS[variant].build(layer)
