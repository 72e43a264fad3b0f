"""Programs that compute a convolution layer, by name."""

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
from mapper.rewrites.catalogue import blocked_program, why_not


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to compute a layer; ``build`` makes its program.

    ``applies`` is None for a layer that the variant computes, else what it does not do: the
    field, what was found and what is allowed. ``build`` is for layers to which it applies, and
    gives them in 32-bit floats whatever they are stored in (:func:`variant_program` does both).
    With ``free_grid`` its mappings may use fewer local dimensions than work-group dimensions
    (see ``RuleOptions``): its work-groups are one line of work-items.
    """

    name: str
    description: str
    build: Callable[[LayerSpec], Program]
    applies: Callable[[LayerSpec], Problem | None]
    free_grid: bool = False


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


def _blocked(name: str, description: str) -> Variant:
    return Variant(
        name,
        description,
        lambda layer: blocked_program(layer, name),
        lambda layer: why_not(layer, name),
        free_grid=True,
    )


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
        _blocked(
            "tiled",
            "tiles of image and packed weights in local memory, accumulators in registers",
        ),
        _blocked("tiled-slices", "tiled, with channels shared out within a work-group"),
        _blocked(
            "tiled-split", "tiled, with channels split over work-groups, a second kernel adds"
        ),
        _blocked("tiled-slices-split", "tiled, with channels shared out at both levels"),
        _blocked("tiled-vectors", "tiled, with rows of the image copied in vectors"),
        _blocked("tiled-vectors-slices", "tiled-slices, with rows of the image copied in vectors"),
        _blocked("tiled-vectors-split", "tiled-split, with rows of the image copied in vectors"),
        _blocked(
            "tiled-vectors-slices-split",
            "tiled-slices-split, with rows of the image copied in vectors",
        ),
        _blocked("tiled-in-place", "tiled, from weights as they are: no memory beyond the layer's"),
        _blocked(
            "tiled-reread",
            "tiled, operands read from local memory at each use (large kernels, long strides)",
        ),
        _blocked("im2col", "windows copied to columns, then a tiled matrix product (GEMM)"),
        _blocked(
            "blocked",
            "accumulators in the registers of lone work-items, image padded, weights packed (CPUs)",
        ),
        _blocked("blocked-in-place", "blocked, from the image as it is: guards instead of a copy"),
        _blocked(
            "blocked-bands",
            "blocked, a chunk of channels for a band of tiles whose sums are held meanwhile",
        ),
        _blocked(
            "blocked-bands-in-place",
            "blocked-bands, from the image as it is: for one that needs no border",
        ),
        _blocked("channelwise", "depthwise layers, channels in the lanes of vectors (CPUs)"),
    )
}

DEFAULT_VARIANT = "direct"
#: Computes every layer.
LAST_RESORT = "high-level"


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
        others = [name for name, other in VARIANTS.items() if other.applies(layer) is None]
        remedy = f"the variant {' or '.join(others)}" if others else ""
        raise InputError(
            replace(problem, message=f"the variant {variant} does not do this", remedy=remedy)
        )
    program = VARIANTS[variant].build(layer)
    return stored_in_half(program) if layer.dtype is DType.FLOAT16 else program
