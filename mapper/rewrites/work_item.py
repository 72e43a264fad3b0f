"""What one work-item of a blocked convolution does with a chunk of channels, in the IR."""

from __future__ import annotations

from dataclasses import dataclass

from mapper.ast_model.builders import Builder, call, fill, get, identity, to_private
from mapper.ast_model.index_expr import Expr, exact_div
from mapper.ast_model.nodes import Join, Node, Split, Zip
from mapper.rewrites import operands
from mapper.rewrites.blocking import Blocking
from mapper.rewrites.labelled import Labelled
from mapper.rewrites.parameters import PV, TM, TP, TR, UC, UT, V
from mapper.rewrites.shape import KW


@dataclass(frozen=True, slots=True)
class WorkItem:
    """Products of a chunk, added to sums in registers: a channel and a tap after the other.

    ``front`` and ``wide``: columns of an image row that are read before and beyond the needed ones.
    """

    build: Builder
    blocking: Blocking
    front: Expr
    wide: Expr

    def sums(self, item: Node) -> Node:
        """[r][p][m][v] plus the products of [c][h][w] and [c][tap][m]."""
        build = self.build
        channels = Zip((get(item, 1), get(item, 2)))

        def added(start: Node) -> Node:
            return Join(
                build.reduce(
                    lambda acc, both: self.channel(acc, get(both, 0), get(both, 1)),
                    start,
                    channels,
                    step="channel",
                    unroll=UC if self.blocking.unrolled_channels else 0,
                )
            )

        if not self.blocking.held:
            return added(get(item, 0))
        zeros = fill(0.0, TR, TP, exact_div(TM, V), V)
        start = build.nest(("hold_r", "hold_p", "hold_m", "hold_v"), identity, zeros)
        return build.nest(
            ("wait_r", "wait_p", "wait_m", "wait_v"),
            lambda pair: call("add", get(pair, 0), get(pair, 1)),
            build.zip_nd(4, get(item, 0), added(to_private(start))),
        )

    def channel(self, acc: Node, patch: Node, weights: Node) -> Node:
        """Add the products of one channel's [h][w] and [tap][m]; [h][w][m] if channelwise."""
        build, blocking = self.build, self.blocking
        vectors = build.split_at(V, weights, 1)
        own: tuple[str, ...] = ()
        if blocking.channelwise:
            patch, own = build.split_at(V, patch, 2), ("m", "v")

        def multiplied(patch: Node, vectors: Node) -> Node:
            rows = Labelled(build, patch, ("h", "w", *own))
            cells = operands.taps(blocking.shape, rows, self.front, self.wide)
            if not blocking.weights_by_row:
                return self.taps(acc, cells.node, vectors)
            rows = Zip((cells.split("tap", KW, "kh", "kw").node, Split(KW, vectors)))
            return Join(build.reduce(self.row_of_taps, acc, rows, step="row"))

        def with_weights(patch: Node) -> Node:
            if blocking.weights_by_row or not blocking.weights_in_registers:
                return multiplied(patch, vectors)
            kept = to_private(build.nest(("tap", "tap_m", "tap_v"), identity, vectors))
            return build.let(kept, lambda kept: multiplied(patch, kept))

        if not blocking.image_in_registers:
            return with_weights(patch)
        row_vectors = build.split_at(PV, patch, 1)
        kept = build.nest(("patch_y", "patch_x", "patch_v"), identity, row_vectors)
        return build.let(to_private(build.join_at(kept, 1)), with_weights)

    def row_of_taps(self, acc: Node, row: Node) -> Node:
        """Add the products of one row of the kernel, with its weights in registers."""
        build = self.build
        kept = to_private(build.nest(("tap", "tap_m", "tap_v"), identity, get(row, 1)))
        return build.let(
            kept,
            lambda weights: self.taps(acc, get(row, 0), weights),
        )

    def taps(self, acc: Node, cells: Node, weights: Node) -> Node:
        """acc[r][p][m][v] plus the products of [tap][r][p] and [tap][m][v]."""
        unroll = UT if self.blocking.unrolled else 0
        steps = Zip((cells, weights))
        return Join(self.build.reduce(self.tap, acc, steps, step="tap", unroll=unroll))

    def tap(self, acc: Node, step: Node) -> Node:
        """acc[r][p][m][v] + cells[r][p] * weights[m][v], for one tap; with a pixel of its own,
        cells[r][p][m][v], for each filter if channelwise."""
        build, weights = self.build, get(step, 1)

        def cell(pair: Node) -> Node:
            pixel = get(pair, 1)
            own = (pixel,) if self.blocking.channelwise else ()
            arrays = (get(pair, 0), *own, weights)
            last = len(arrays) - 1
            return build.map(
                "m",
                lambda row: build.map(
                    "v",
                    lambda z: self.product_added(
                        get(z, last), get(z, 1) if own else pixel, get(z, 0)
                    ),
                    Zip(tuple(get(row, place) for place in range(len(arrays)))),
                ),
                Zip(arrays),
            )

        return build.nest(("r", "p"), cell, build.zip_nd(2, acc, get(step, 0)))

    def product_added(self, weight: Node, pixel: Node, total: Node) -> Node:
        if self.blocking.contracted:
            return call("add", total, call("mul", weight, pixel))
        return call("fma", weight, pixel, total)
