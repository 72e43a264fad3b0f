"""The chains of rewrites that are offered as variants of a layer."""

from __future__ import annotations

from mapper.ast_model.nodes import Program
from mapper.errors import Problem
from mapper.layer_spec import LayerSpec
from mapper.rewrites.blocking import Blocking
from mapper.rewrites.lowering import program_of
from mapper.rewrites.rules import (
    ChannelLanes,
    ContractSums,
    FlattenPixels,
    HoldSums,
    ImageToLocal,
    ImageToRegisters,
    PackWeights,
    PadImage,
    Rewrite,
    SliceChannels,
    SplitChannels,
    UnrollChannels,
    UnrollTaps,
    UnrollWindows,
    VectorRows,
    WeightsToLocal,
    WeightsToRegisters,
    rewritten,
)

_TILED: tuple[Rewrite, ...] = (
    PackWeights(),
    ImageToLocal(),
    WeightsToLocal(),
    ImageToRegisters(),
    WeightsToRegisters(),
)

_VECTORS: tuple[Rewrite, ...] = (*_TILED, VectorRows(), UnrollChannels())

# For work-items that work alone, on the vectors of a processor.
_LONE: tuple[Rewrite, ...] = (PackWeights(), UnrollTaps(), ContractSums())

CHAINS: dict[str, tuple[Rewrite, ...]] = {
    "tiled": _TILED,
    "tiled-slices": (*_TILED, SliceChannels()),
    "tiled-split": (*_TILED, SplitChannels()),
    "tiled-slices-split": (*_TILED, SliceChannels(), SplitChannels()),
    "tiled-vectors": _VECTORS,
    "tiled-vectors-slices": (*_VECTORS, SliceChannels()),
    "tiled-vectors-split": (*_VECTORS, SplitChannels()),
    "tiled-vectors-slices-split": (*_VECTORS, SliceChannels(), SplitChannels()),
    "tiled-in-place": _TILED[1:],
    "tiled-reread": _TILED[:3],
    "im2col": (UnrollWindows(), *_TILED),
    "blocked": (*_LONE, PadImage()),
    "blocked-in-place": _LONE,
    "blocked-bands": (*_LONE, PadImage(), HoldSums()),
    "blocked-bands-in-place": (*_LONE, HoldSums()),
    "channelwise": (PackWeights(), ChannelLanes(), UnrollTaps(), ContractSums()),
}
"""By variant: rewrites in order. Where :class:`FlattenPixels` applies, it comes first."""

LONE_VARIANTS = frozenset(name for name, chain in CHAINS.items() if ContractSums() in chain)
"""Those for work-items that work alone, each on the vectors of a processor's core."""


def blocking_of(layer: LayerSpec, variant: str) -> Blocking:
    """The mid-level form of a layer in a variant; InputError if a rewrite does not apply."""
    flatten = FlattenPixels()
    chain = CHAINS[variant]
    # In a depthwise convolution of one tap nothing is gained by joined rows.
    joins = ChannelLanes() not in chain and flatten.why_not(Blocking(layer)) is None
    return rewritten(layer, *((flatten,) if joins else ()), *chain)


def blocked_program(layer: LayerSpec, variant: str) -> Program:
    """The program of a layer in one of these variants."""
    return program_of(blocking_of(layer, variant))


def why_not(layer: LayerSpec, variant: str) -> Problem | None:
    """The first rewrite of a variant that does not apply to a layer, or None."""
    blocking = Blocking(layer)
    for rewrite in CHAINS[variant]:
        problem = rewrite.why_not(blocking)
        if problem is not None:
            return problem
        blocking = rewrite.apply(blocking)
    return None
