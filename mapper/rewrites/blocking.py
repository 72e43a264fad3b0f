"""What the rewrites decide: how a convolution is cut up and where its parts are kept.

A :class:`Blocking` is one mid-level form of a layer; :func:`mapper.rewrites.lowering.program_of`
writes it as a program in the IR. Rewrites (:mod:`mapper.rewrites.rules`) turn one into another.
"""

from __future__ import annotations

from dataclasses import dataclass

from mapper.layer_spec import LayerSpec
from mapper.rewrites.shape import Shape


@dataclass(frozen=True, slots=True)
class Blocking:
    """A convolution cut into tiles of filters, rows and columns, and chunks of channels.

    ``image_in_local`` and ``weights_in_local``: a work-group copies what a chunk needs to
    local memory first; ``…_in_registers``: a work-item copies what one channel needs to
    registers; ``weights_by_row``: of the weights only one kernel row at a time. ``sliced``:
    work-items of a group share a chunk's channels out and add up in local memory. ``split``:
    work-groups share the channels out, and a second kernel adds up. ``packed``: a kernel that
    runs once lays the weights out in tiles. ``padded``: a first kernel writes the image with
    its border. ``flat``: rows are one (a 1x1 kernel that does not skip or pad). ``columns``: a
    first kernel writes the window of each output as a column, and the rest is a matrix product.
    ``unrolled``: the taps of a kernel may be written out one by one; ``unrolled_channels``: the
    channels of a chunk. ``vector_rows``: rows of the image are copied to local memory in vectors.
    ``channelwise``: every filter has one channel, its own, and both are one dimension.
    ``held``: a chunk of channels goes over all of a work-item's tiles before the next, and the
    sums of the tiles are held in private memory meanwhile.
    ``contracted``: a product and a sum, of which compilers make one instruction, instead of a
    call of ``fma``.
    """

    layer: LayerSpec
    image_in_local: bool = False
    weights_in_local: bool = False
    image_in_registers: bool = False
    weights_in_registers: bool = False
    weights_by_row: bool = False
    sliced: bool = False
    split: bool = False
    packed: bool = False
    padded: bool = False
    flat: bool = False
    columns: bool = False
    unrolled: bool = False
    unrolled_channels: bool = False
    vector_rows: bool = False
    contracted: bool = False
    channelwise: bool = False
    held: bool = False

    @property
    def shape(self) -> Shape:
        """The sizes that it is computed with."""
        return Shape(self.layer, self.flat, self.columns, self.channelwise)

    @property
    def row_length(self) -> int:
        """Pixels that are neighbours in memory, in every row that the main kernel reads."""
        return dict(self.shape.sizes)["W"] if self.columns else self.layer.width

    @property
    def prefetches(self) -> bool:
        """True if copies to local memory may start a chunk early."""
        return self.image_in_local or self.weights_in_local
