"""Programs that compute a convolution layer, by name: those of the two papers, and the one that
sketches rewrite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from mapper.ast_model.nodes import Program
from mapper.errors import InputError, Problem
from mapper.layer_spec import Activation, DType, LayerSpec, Layout
from mapper.programs.direct_convolution import direct_convolution
from mapper.programs.half_storage import stored_in_half
from mapper.programs.high_level import high_level_convolution
from mapper.programs.partial_convolution import partial_convolution


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to compute a layer; ``build`` makes its program.

    ``applies`` is None for a layer that the variant computes, else what it does not do: the
    field, what was found and what is allowed. ``build`` is for layers to which it applies, and
    gives them in 32-bit floats whatever they are stored in (:func:`variant_program` does both).
    """

    name: str
    description: str
    build: Callable[[LayerSpec], Program]
    applies: Callable[[LayerSpec], Problem | None]


def _only(layer: LayerSpec, **allowed: object) -> Problem | None:
    """None if these fields of the layer are as they have to be, else the first that is not."""
    for field, wanted in allowed.items():
        found = getattr(layer, field)
        if found != wanted:
            return Problem(f"layer.{field}", "not done in this variant", str(found), str(wanted))
    return None


def every_layer(layer: LayerSpec) -> Problem | None:
    """A variant that does everything."""
    del layer
    return None


def one_plain_image(layer: LayerSpec) -> Problem | None:
    """A variant for one image of one group, as both papers have it."""
    return _only(
        layer,
        batch=1,
        groups=1,
        dilation_y=1,
        dilation_x=1,
        bias=False,
        activation=Activation.NONE,
        layout=Layout.NHWC,
    )


def one_plain_image_in_equal_steps(layer: LayerSpec) -> Problem | None:
    """As :func:`one_plain_image`; one padding serves rows and columns, so strides are equal."""
    return one_plain_image(layer) or _only(layer, stride_x=layer.stride_y)


VARIANTS: dict[str, Variant] = {
    v.name: v
    for v in (
        Variant(
            "direct",
            "tiled direct convolution, cached in registers (CC'22); no extra global memory",
            direct_convolution,
            one_plain_image,
        ),
        Variant(
            "partial",
            "pad, tiled partial convolution, reduction, crop (GPGPU'20)",
            partial_convolution,
            one_plain_image_in_equal_steps,
        ),
        Variant(
            "high-level",
            "one output element a loop iteration (GPGPU'20, Listing 3); no tuning parameters",
            high_level_convolution,
            every_layer,
        ),
    )
}

DEFAULT_VARIANT = "direct"
#: Computes every layer.
LAST_RESORT = "high-level"


def variants_of(layer: LayerSpec) -> tuple[str, ...]:
    """The names of the variants that compute a layer."""
    return tuple(name for name, variant in VARIANTS.items() if variant.applies(layer) is None)


def variant_program(layer: LayerSpec, variant: str) -> Program:
    """The program of a layer in a variant.

    InputError lists the variants, or says what of the layer this one does not do.
    """
    if variant not in VARIANTS:
        raise InputError(
            Problem("variant", "no variant of this name", repr(variant), ", ".join(VARIANTS))
        )
    problem = VARIANTS[variant].applies(layer)
    if problem is not None:
        others = variants_of(layer)
        remedy = f"the variant {' or '.join(others)}" if others else ""
        raise InputError(
            replace(problem, message=f"the variant {variant} does not do this", remedy=remedy)
        )
    program = VARIANTS[variant].build(layer)
    return stored_in_half(program) if layer.dtype is DType.FLOAT16 else program
