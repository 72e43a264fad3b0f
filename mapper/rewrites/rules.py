"""Rewrites of a blocked convolution, each with the conditions under which it applies.

All keep the meaning: the program of the result computes what the program before computed
(tests/property/test_rewrites.py holds each, and chains of them, against the interpreter).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from mapper.errors import InputError, Problem
from mapper.layer_spec import LayerSpec, Layout
from mapper.rewrites.blocking import Blocking


class Rewrite(Protocol):
    """One step from a mid-level form to another."""

    @property
    def name(self) -> str:
        """What it is called in errors and documents."""
        ...

    def why_not(self, blocking: Blocking) -> Problem | None:
        """What stands against it, or None."""
        ...

    def apply(self, blocking: Blocking) -> Blocking:
        """The form behind it; only where :meth:`why_not` is None."""
        ...


def rewritten(layer: LayerSpec, *rewrites: Rewrite) -> Blocking:
    """A layer after these rewrites in order; InputError names the first that does not apply."""
    blocking = Blocking(layer)
    for rewrite in rewrites:
        problem = rewrite.why_not(blocking)
        if problem is not None:
            raise InputError(problem)
        blocking = rewrite.apply(blocking)
    return blocking


def _once(name: str, done: bool) -> Problem | None:
    return Problem(f"rewrite.{name}", "is done already", "twice", "once") if done else None


def _once_on_shared(name: str, blocking: Blocking, done: bool) -> Problem | None:
    """As :func:`_once`, of an image whose channels several filters read."""
    if blocking.channelwise:
        return Problem(f"rewrite.{name}", "is of channels that several filters read",
                       "channel-lanes before it", "no channel-lanes")  # fmt: skip
    return _once(name, done)


def _only_in(layout: Layout, blocking: Blocking, why: str) -> Problem | None:
    """What stands against a rewrite that is for one layout."""
    found = blocking.layer.layout
    if found is layout:
        return None
    return Problem("layer.layout", why, found.value, layout.value)


@dataclass(frozen=True, slots=True)
class FlattenPixels:
    """Rows joined into one, so that tiles do not end with a row.

    Applies to 1x1 kernels that neither skip nor pad: then no window spans two rows.
    """

    name: str = "flatten-pixels"

    def why_not(self, blocking: Blocking) -> Problem | None:
        layer = blocking.layer
        wanted = {
            "kernel_height": 1,
            "kernel_width": 1,
            "stride_y": 1,
            "stride_x": 1,
            "pad_top": 0,
            "pad_left": 0,
            "pad_bottom": 0,
            "pad_right": 0,
        }
        for field, value in wanted.items():
            if getattr(layer, field) != value:
                return Problem(
                    f"layer.{field}",
                    f"{self.name} joins rows of 1x1 convolutions that neither skip nor pad",
                    str(getattr(layer, field)),
                    str(value),
                )
        return _once_on_shared(self.name, blocking, blocking.flat)

    def apply(self, blocking: Blocking) -> Blocking:
        return replace(blocking, flat=True)


@dataclass(frozen=True, slots=True)
class UnrollWindows:
    """im2col: the window of each output copied to a column, so that a matrix product is left.

    The columns take the memory of the image once for each tap, of what strides leave. It always
    applies; behind :class:`FlattenPixels` the image is such a matrix, and nothing is copied.
    """

    name: str = "unroll-windows"

    def why_not(self, blocking: Blocking) -> Problem | None:
        return _once_on_shared(self.name, blocking, blocking.columns)

    def apply(self, blocking: Blocking) -> Blocking:
        # Outputs are columns of one matrix, whichever row they are of.
        return blocking if blocking.flat else replace(blocking, columns=True, flat=True)


@dataclass(frozen=True, slots=True)
class PackWeights:
    """Weights laid out in tiles by a kernel that runs once for a network.

    Tiles of ``bm`` filters are contiguous then, which vector loads need. It always applies.
    """

    name: str = "pack-weights"

    def why_not(self, blocking: Blocking) -> Problem | None:
        return _once(self.name, blocking.packed)

    def apply(self, blocking: Blocking) -> Blocking:
        return replace(blocking, packed=True)


@dataclass(frozen=True, slots=True)
class PadImage:
    """The image copied with its border, so that the main kernel needs no guards for reading.

    Applies unless rows are copied in vectors, whose borders are whole vectors already; the copy
    takes the time and the memory of one more image.
    """

    name: str = "pad-image"

    def why_not(self, blocking: Blocking) -> Problem | None:
        if blocking.vector_rows:
            return Problem(f"rewrite.{self.name}", "pads pixels, and the image is of vectors")
        return _once_on_shared(self.name, blocking, blocking.padded)

    def apply(self, blocking: Blocking) -> Blocking:
        return replace(blocking, padded=True)


@dataclass(frozen=True, slots=True)
class ImageToLocal:
    """A chunk of the image, with the halo of a tile, copied to local memory by the group."""

    name: str = "image-to-local"

    def why_not(self, blocking: Blocking) -> Problem | None:
        return _once_on_shared(self.name, blocking, blocking.image_in_local)

    def apply(self, blocking: Blocking) -> Blocking:
        return replace(blocking, image_in_local=True)


@dataclass(frozen=True, slots=True)
class VectorRows:
    """Rows of the image copied to local memory in vectors of ``iv`` pixels.

    Every vector is within the image or in its border, so that one guard serves all its pixels and
    nothing is left to be done with what was loaded: a copy that starts a chunk early need not
    wait for it. Applies behind :class:`ImageToLocal`, to images in NCHW that are not padded first
    and have rows of an even length.
    """

    name: str = "vector-rows"

    def why_not(self, blocking: Blocking) -> Problem | None:
        if not blocking.image_in_local:
            return Problem(f"rewrite.{self.name}", "is of copies to local memory, which come first")
        if blocking.padded:
            return Problem(f"rewrite.{self.name}", "is of images that are not padded first")
        why = f"{self.name} needs pixels of a row to be neighbours in memory"
        if (problem := _only_in(Layout.NCHW, blocking, why)) is not None:
            return problem
        length = blocking.row_length
        if length % 2:
            return Problem(
                "layer.width", f"{self.name} cuts rows into vectors", str(length), "an even number"
            )
        return _once(self.name, blocking.vector_rows)

    def apply(self, blocking: Blocking) -> Blocking:
        return replace(blocking, vector_rows=True)


@dataclass(frozen=True, slots=True)
class WeightsToLocal:
    """A chunk of the weights copied to local memory by the group."""

    name: str = "weights-to-local"

    def why_not(self, blocking: Blocking) -> Problem | None:
        return _once_on_shared(self.name, blocking, blocking.weights_in_local)

    def apply(self, blocking: Blocking) -> Blocking:
        return replace(blocking, weights_in_local=True)


@dataclass(frozen=True, slots=True)
class ImageToRegisters:
    """The patch that a work-item needs of one channel kept in registers, read as vectors."""

    name: str = "image-to-registers"

    def why_not(self, blocking: Blocking) -> Problem | None:
        return _once_on_shared(self.name, blocking, blocking.image_in_registers)

    def apply(self, blocking: Blocking) -> Blocking:
        return replace(blocking, image_in_registers=True)


@dataclass(frozen=True, slots=True)
class WeightsToRegisters:
    """A work-item's weights of one channel kept in registers, all or ``by_row`` of the kernel."""

    by_row: bool = False
    name: str = "weights-to-registers"

    def why_not(self, blocking: Blocking) -> Problem | None:
        return _once_on_shared(self.name, blocking, blocking.weights_in_registers)

    def apply(self, blocking: Blocking) -> Blocking:
        return replace(blocking, weights_in_registers=True, weights_by_row=self.by_row)


@dataclass(frozen=True, slots=True)
class ChannelLanes:
    """Channels of a depthwise convolution in the lanes of vectors.

    Groups of one channel and one filter leave nothing that a vector of filters could share; here
    channel and filter are one dimension, along which image, weights and sums are vectors. Applies
    where every group has one channel and one filter, to no more than packed weights, and in NHWC,
    where the channels of a pixel are neighbours in memory.
    """

    name: str = "channel-lanes"

    def why_not(self, blocking: Blocking) -> Problem | None:
        layer = blocking.layer
        for field in ("channels", "filters"):
            if getattr(layer, field) != layer.groups:
                return Problem(
                    f"layer.{field}",
                    f"{self.name} is for one channel and one filter in each group",
                    str(getattr(layer, field)),
                    f"{layer.groups}, as many as groups",
                )
        if layer.groups == 1:
            return Problem("layer.groups", f"{self.name} is for several groups", "1", "2 or more")
        why = f"{self.name} needs channels of a pixel to be neighbours in memory"
        if (problem := _only_in(Layout.NHWC, blocking, why)) is not None:
            return problem
        if blocking != Blocking(layer, packed=blocking.packed):
            return Problem(f"rewrite.{self.name}", "comes before all others but pack-weights")
        return None

    def apply(self, blocking: Blocking) -> Blocking:
        return replace(blocking, channelwise=True)


@dataclass(frozen=True, slots=True)
class UnrollTaps:
    """The taps of a kernel may be written out (``ut`` = 1): their places are constants then.

    It always applies.
    """

    name: str = "unroll-taps"

    def why_not(self, blocking: Blocking) -> Problem | None:
        return _once(self.name, blocking.unrolled)

    def apply(self, blocking: Blocking) -> Blocking:
        return replace(blocking, unrolled=True)


@dataclass(frozen=True, slots=True)
class UnrollChannels:
    """The channels that a work-item adds up of a chunk may be written out (``uc`` = 1).

    A compiler can then load a channel's pixels and weights while it multiplies those of the one
    before: worth most where few work-items share a processor. It always applies.
    """

    name: str = "unroll-channels"

    def why_not(self, blocking: Blocking) -> Problem | None:
        return _once(self.name, blocking.unrolled_channels)

    def apply(self, blocking: Blocking) -> Blocking:
        return replace(blocking, unrolled_channels=True)


@dataclass(frozen=True, slots=True)
class ContractSums:
    """A product and a sum instead of ``fma``: OpenCL C lets compilers make one instruction of it.

    PoCL 3.0 has ``fma`` of vectors in a library that it does not inline: a call for each, which
    makes a kernel four times slower. It always applies.
    """

    name: str = "contract-sums"

    def why_not(self, blocking: Blocking) -> Problem | None:
        return _once(self.name, blocking.contracted)

    def apply(self, blocking: Blocking) -> Blocking:
        return replace(blocking, contracted=True)


@dataclass(frozen=True, slots=True)
class HoldSums:
    """Sums of all of a work-item's tiles held in private memory, those of one chunk in registers.

    The chunk's weights serve one tile after the other, a *band*, and stay in the cache nearest to
    the processor meanwhile. Applies where several filters read a channel; where a work-item has
    one tile it only adds what is added anyway.
    """

    name: str = "hold-sums"

    def why_not(self, blocking: Blocking) -> Problem | None:
        return _once_on_shared(self.name, blocking, blocking.held)

    def apply(self, blocking: Blocking) -> Blocking:
        return replace(blocking, held=True)


def _several_channels(name: str, blocking: Blocking) -> Problem | None:
    channels = blocking.layer.channels // blocking.layer.groups
    if channels == 1:
        return Problem(
            "layer.channels", f"{name} shares channels out, and a group has one", "1", "2 or more"
        )
    return None


@dataclass(frozen=True, slots=True)
class SliceChannels:
    """Channels of a chunk shared out among work-items, whose sums are added in local memory.

    Applies where a filter sums over several channels.
    """

    name: str = "slice-channels"

    def why_not(self, blocking: Blocking) -> Problem | None:
        return _once(self.name, blocking.sliced) or _several_channels(self.name, blocking)

    def apply(self, blocking: Blocking) -> Blocking:
        return replace(blocking, sliced=True)


@dataclass(frozen=True, slots=True)
class SplitChannels:
    """Channels shared out among work-groups, whose sums a second kernel adds.

    Applies where a filter sums over several channels; the partial sums take ``sp`` times the
    result in global memory.
    """

    name: str = "split-channels"

    def why_not(self, blocking: Blocking) -> Problem | None:
        return _once(self.name, blocking.split) or _several_channels(self.name, blocking)

    def apply(self, blocking: Blocking) -> Blocking:
        return replace(blocking, split=True)
