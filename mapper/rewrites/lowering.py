"""Blocked convolutions as programs in the IR.

A work-group makes ``bm`` filters of ``th`` x ``tw`` outputs, a work-item of it ``tm`` filters
of ``tr`` x ``tp`` outputs, which it accumulates in registers. Channels come in chunks of
``bc``; for each chunk the work-group may copy its part of image and weights to local memory
first. The blocking follows the tiled convolution of "Mapping Parallelism in a Functional IR
through Constraint Satisfaction" (CC'22), section 5.3, with accumulators that stay in
registers while the group goes through the chunks, and the guards for ragged sizes of "Boda:
A Holistic Approach for Implementing Neural Network Computations", section 3.3.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from mapper.ast_model.builders import (
    Builder,
    call,
    fill,
    get,
    identity,
    to_local,
    to_private,
)
from mapper.ast_model.index_expr import Expr, const, exact_div
from mapper.ast_model.nodes import Join, Kernel, Literal, Node, Program, Ref, Zip
from mapper.layer_spec import CHANNEL_BLOCK, Layout
from mapper.programs.common import WEIGHTS
from mapper.rewrites import operands
from mapper.rewrites.blocking import Blocking
from mapper.rewrites.epilogue import Epilogue
from mapper.rewrites.labelled import Labelled
from mapper.rewrites.parameters import (
    BC,
    BM,
    FRONT,
    IV,
    KA,
    KS,
    MI,
    PF,
    RHO_X,
    RHO_Y,
    SP,
    TH,
    TM,
    TP,
    TR,
    TV,
    TW,
    WIDE,
    V,
    parameters_of,
    requirements_of,
)
from mapper.rewrites.shape import C, M
from mapper.rewrites.work_item import WorkItem

THREADS = ("k", "mo", "y", "x", "mi")
TILE = ("r", "p", "m", "v")
_PADS = {
    "g": "pad_group", "n": "pad_image", "blocks": "pad_block", "c": "pad_channel",
    "in_block": "pad_channel", "h": "pad_row", "w": "pad_column",
}  # fmt: skip


def program_of(blocking: Blocking) -> Program:
    """The program of a blocked convolution; its last kernel's value is the result."""
    return _Lowering(blocking).program()


class _Lowering:
    def __init__(self, blocking: Blocking) -> None:
        self.blocking = blocking
        self.shape = blocking.shape
        self.build = Builder()
        self.epilogue = Epilogue(blocking.layer)
        # Work-items of a group, outermost first; without local tiles each works alone.
        self.threads = THREADS if blocking.sliced else THREADS[1:]
        self.wide: Expr = WIDE if blocking.image_in_registers else const(0)
        self.front: Expr = FRONT if blocking.vector_rows else const(0)

    def program(self) -> Program:
        blocking = self.blocking
        kernels: list[Kernel] = []
        if blocking.packed:
            kernels.append(Kernel("packed", self.packed()))
        if blocking.columns:
            kernels.append(Kernel("columns", self.columns()))
        if blocking.padded:
            kernels.append(Kernel("padded", self.padded()))
        if blocking.split:
            kernels.append(Kernel("partial_sums", self.convolution()))
            kernels.append(Kernel("convolution", self.sums()))
        else:
            kernels.append(Kernel("convolution", self.convolution()))
        return Program(
            name="tiled_convolution",
            sizes=self.shape.sizes,
            parameters=parameters_of(blocking),
            requirements=requirements_of(blocking),
            functions=self.epilogue.functions(),
            inputs=operands.inputs_of(self.shape),
            kernels=tuple(kernels),
            constants=(WEIGHTS,),
        )

    # -- what runs before ------------------------------------------------------------------

    def packed(self) -> Node:
        """[g][block][c][tap][f]: the weights as the work-groups read them."""
        plain = operands.weights(self.build, self.shape, BM)
        return self.build.nest(
            ("pack_group", "pack_block", "pack_channel", "pack_tap", "pack_filter"),
            identity,
            plain.node,
        )

    def columns(self) -> Node:
        """[g][n][c][1][w]: for each output what its window holds, all taps of a channel together.

        im2col, as "Auto-Generation of Specialized Direct Convolutions for Mobile GPUs"
        (GPGPU'20), section 2, describes it: memory of the image once for each tap.
        """
        return self.build.nest(
            ("column_group", "column_image", "column_channel", "column_row", "column_pixel"),
            identity,
            operands.columns(self.build, self.shape).node,
        )

    def image(self) -> Labelled:
        layer = self.shape.computed
        if self.blocking.columns:
            plain = Labelled(self.build, Ref("columns"), ("g", "n", "c", "h", "w"))
            if self.blocking.vector_rows:
                plain = plain.split("w", IV, "w", "iv")
        else:
            vector = IV if self.blocking.vector_rows else None
            plain = operands.image(self.build, self.shape, vector)
        rows, columns = RHO_Y * layer.stride_y, RHO_X * layer.stride_x + self.wide
        if self.blocking.vector_rows:
            return operands.bordered_vectors(self.shape, plain, rows, columns, self.front, IV)
        return operands.bordered(self.shape, plain, rows, columns)

    def padded(self) -> Node:
        """The image with its border, in rows as the layer has them or in blocks of channels."""
        image = self.image()
        if "blocks" in self.padded_order:
            image = image.split("c", self.channel_block, "blocks", "in_block")
        image = image.order(*self.padded_order)
        return self.build.nest(tuple(_PADS[label] for label in image.labels), identity, image.node)

    @property
    def padded_order(self) -> tuple[str, ...]:
        in_blocks = ("g", "n", "blocks", "h", "w", "in_block")
        layer = self.shape.layer
        match layer.layout:
            case Layout.NCHW:
                return ("g", "n", "c", "h", "w")
            case Layout.NCHW16C if layer.channels >= CHANNEL_BLOCK:
                return in_blocks
            case _:
                # Pixels with all their channels are a power of two apart in many layers, and then
                # share few places of a cache; whole blocks are copied in vectors.
                whole = self.channel_block == CHANNEL_BLOCK
                return in_blocks if whole else ("g", "n", "h", "w", "c")

    @property
    def channel_block(self) -> int:
        """Channels of a block of the padded image: no block holds channels of two groups."""
        return gcd(dict(self.shape.sizes)["C"], CHANNEL_BLOCK)

    # -- the kernel ------------------------------------------------------------------------

    def convolution(self) -> Node:
        """The result, or with ``split`` the partial sums [s][n][m][h][w]."""
        blocking, build, shape = self.blocking, self.build, self.shape
        image = self.image()
        if blocking.padded:
            padded = Labelled(build, Ref("padded"), self.padded_order)
            if "blocks" in padded.labels:
                padded = padded.order("g", "n", "blocks", "in_block")
                padded = padded.merge("blocks", "in_block", "c")
            image = padded.order(*image.labels)
        if blocking.channelwise:
            image = operands.own_channels(shape, image)
        if blocking.vector_rows:
            more = self.front + self.wide
            tiles = operands.vector_windows(shape, image, (TH, TW), more, IV, TV)
        else:
            tiles = operands.windows(shape, image, (TH, TW), self.wide)
        weights = operands.weights(build, shape, BM)
        if blocking.packed:
            weights = Labelled(build, Ref("packed"), weights.labels)
        if not blocking.split:
            return operands.at_edge(shape, self.cropped(self.blocks(tiles, weights)))
        channels = exact_div(C, SP)
        parts = Zip(
            (
                tiles.split("c", channels, "s", "c").order("s").node,
                weights.split("c", channels, "s", "c").order("s").node,
            )
        )
        # Behind the split the other dimensions have the labels they had.
        made = build.map(
            "split",
            lambda part: (
                self.blocks(
                    Labelled(build, get(part, 0), tiles.labels),
                    Labelled(build, get(part, 1), weights.labels),
                ).node
            ),
            parts,
        )
        labels = ("s", "g", "block", "n", "ty", "tx", "f", "th", "tw")
        sums = self.cropped(Labelled(build, made, labels))
        return sums.order("s", "n", "g", "m", "h", "w").merge("g", "m", "gm").node

    def blocks(self, tiles: Labelled, weights: Labelled) -> Labelled:
        """[g][block][n][ty][tx][f][th][tw]: every tile of every block of filters."""
        build, count = self.build, exact_div(M, BM)
        tiles = tiles.order("g", "n", "ty", "tx", "c", "h", "w")
        if self.blocking.channelwise:
            tiles = tiles.split("f", BM, "block", "f").order("g", "block")
        else:
            tiles = tiles.repeated("n", "block", count)
        arrays = [weights.order("g", "block", "c", "tap", "f").node, tiles.node]
        if self.epilogue.has_bias and not self.blocking.split:
            arrays.append(operands.bias(build, BM).node)

        def block(both: Node) -> Node:
            offset = get(both, 2) if len(arrays) > 2 else None
            return build.nest(
                ("image", "tile_y", "tile_x"),
                lambda tile: self.tile(tile, get(both, 0), offset),
                get(both, 1),
            )

        node = build.nest(("group", "block"), block, build.zip_nd(2, *arrays))
        return Labelled(build, node, ("g", "block", "n", "ty", "tx", "f", "th", "tw"))

    def cropped(self, blocks: Labelled) -> Labelled:
        """[...][n][g][m][h][w] without the outputs that fill the last tiles up."""
        rest = tuple(label for label in blocks.labels if label == "s")
        result = blocks.order(*rest, "n", "g", "block", "f", "ty", "th", "tx", "tw")
        result = result.merge("tx", "tw", "w").merge("ty", "th", "h").merge("block", "f", "m")
        return result.at(
            "h", lambda plane: self.build.pad_2d((0, -RHO_Y), (0, -RHO_X), plane), ("h", "w")
        )

    def tile(self, tile: Node, weights: Node, bias: Node | None) -> Node:
        """[c][h][w] and [c][tap][f] -> [f][th][tw]; the image has [f] innermost if channelwise."""
        build = self.build
        chunks = Zip((build.split_at(BC, tile, 0), build.split_at(BC, weights, 0)))
        extents = self.extents()
        zeros = fill(0.0, *(extents[label] for label in (*self.threads, *TILE)))
        ids = tuple(f"zero_{label}" for label in (*self.threads, *TILE))
        total = build.reduce(
            lambda acc, chunk: self.chunk(acc, get(chunk, 0), get(chunk, 1)),
            to_private(build.nest(ids, identity, zeros), len(self.threads)),
            chunks,
            prefetch=PF if self.blocking.prefetches else 0,
            step="chunk",
        )
        sums = Labelled(build, Join(total), (*self.threads, *TILE))
        if self.blocking.sliced:
            return self.added_slices(sums, bias)
        return self.placed(self.written(sums, bias)).node

    def extents(self) -> dict[str, Expr]:
        """The lengths of a work-group's and a work-item's dimensions."""
        return {
            "k": KS,
            "mo": exact_div(BM, TM * MI),
            "y": exact_div(TH, TR),
            "x": exact_div(TW, TP),
            "mi": MI,
            "r": TR,
            "p": TP,
            "m": exact_div(TM, V),
            "v": V,
        }

    def placed(self, sums: Labelled) -> Labelled:
        """[mo][y][x][mi][r][p][m][v] -> [f][th][tw]."""
        order = sums.order("mo", "mi", "m", "v", "y", "r", "x", "p")
        order = order.merge("x", "p", "tw").merge("y", "r", "th")
        return order.merge("m", "v", "f").merge("mi", "f", "f").merge("mo", "f", "f")

    @property
    def by_rows(self) -> bool:
        """Whether neighbours in a row of the result are neighbours in memory, not its channels."""
        return self.blocking.split or self.shape.layer.layout is Layout.NCHW

    def written(self, sums: Labelled, bias: Node | None) -> Labelled:
        """[mo][y][x][mi] of sums: each work-item writes its outputs in their order in memory.

        A row of a filter after the other, with the channels last a pixel after the other, with
        blocks of channels a row of a block after the other.
        """
        build, extents = self.build, self.extents()
        order = TILE
        if self.by_rows:
            order = ("m", "v", "r", "p")
        elif self.shape.layer.layout is Layout.NCHW16C:
            order = ("m", "r", "p", "v")
        arrays = [sums.node]
        if bias is not None:
            offsets = self.offsets(bias)
            offsets = offsets.repeated("mi", "x", extents["x"]).repeated("x", "y", extents["y"])
            arrays.append(offsets.node)

        def item(both: Node) -> Node:
            tile, offset = (both, None) if bias is None else (get(both, 0), get(both, 1))
            return self.written_tile(Labelled(build, tile, TILE).order(*order), offset)

        ids = tuple(f"out_{label}" for label in THREADS[1:])
        array = sums.node if bias is None else build.zip_nd(len(ids), *arrays)
        return Labelled(build, build.nest(ids, item, array), (*THREADS[1:], *order))

    def written_tile(self, tile: Labelled, offsets: Node | None) -> Node:
        """A work-item's tile in the order of :meth:`written`, the offsets [m][v] of its filters."""
        build = self.build
        ids = tuple(f"out_{label}" for label in tile.labels)
        if offsets is None:
            return build.nest(ids, lambda x: self.result(x, None), tile.node)
        if tile.labels == ("m", "r", "p", "v"):

            def block(both: Node) -> Node:
                return build.nest(
                    ids[1:3],
                    lambda cell: build.map(
                        ids[3],
                        lambda pair: self.result(get(pair, 0), get(pair, 1)),
                        Zip((cell, get(both, 1))),
                    ),
                    get(both, 0),
                )

            return build.map(ids[0], block, Zip((tile.node, offsets)))
        if tile.labels[0] == "m":
            return build.nest(
                ids[:2],
                lambda row: build.nest(ids[2:], lambda x: self.result(x, get(row, 1)), get(row, 0)),
                build.zip_nd(2, tile.node, offsets),
            )
        return build.nest(
            ids[:2],
            lambda cell: build.nest(
                ids[2:],
                lambda pair: self.result(get(pair, 0), get(pair, 1)),
                build.zip_nd(2, cell, offsets),
            ),
            tile.node,
        )

    def result(self, total: Node, bias: Node | None) -> Node:
        """What the main kernel writes of a total: partial sums as they are."""
        return identity(total) if self.blocking.split else self.epilogue.result(total, bias)

    # -- one chunk of channels -------------------------------------------------------------

    def chunk(self, acc: Node, tile: Node, weights: Node) -> Node:
        """Add the products of [bc][h][w] and [bc][tap][f] to the accumulators."""
        build, blocking = self.build, self.blocking
        if blocking.image_in_local:
            ids = ("image_c", "image_y", "image_x")
            if blocking.vector_rows:
                copied = build.join_at(build.nest((*ids, "image_v"), identity, tile), 2)
            else:
                copied = build.nest(ids, identity, tile)
            return build.let(to_local(copied), lambda t: self.chunk_weights(acc, t, weights))
        return self.chunk_weights(acc, tile, weights)

    def chunk_weights(self, acc: Node, tile: Node, weights: Node) -> Node:
        build = self.build
        if not self.blocking.weights_in_local:
            return self.work_items(acc, tile, weights)
        vectors = build.split_at(V, weights, 2)
        copied = build.nest(("weight_c", "weight_tap", "weight_m", "weight_v"), identity, vectors)
        local_weights = to_local(build.join_at(copied, 2))
        return build.let(local_weights, lambda w: self.work_items(acc, tile, w))

    def work_items(self, acc: Node, tile: Node, weights: Node) -> Node:
        build, shape, extents = self.build, self.shape, self.extents()
        own = ("f",) if self.blocking.channelwise else ()
        patches = Labelled(build, tile, ("c", "h", "w", *own))
        patches = operands.windows(shape, patches, (TR, TP), self.front + self.wide)
        filters = Labelled(build, weights, ("c", "tap", "f"))
        filters = filters.split("f", TM, "b", "m").split("b", MI, "mo", "mi")
        if self.blocking.sliced:
            share = exact_div(BC, KS)
            patches, filters = (a.split("c", share, "k", "c") for a in (patches, filters))
        slices = ("k",) if self.blocking.sliced else ()
        patches = patches.order(*slices, "ty", "tx", "c", "h", "w")
        if self.blocking.channelwise:
            patches = patches.split("f", TM, "b", "m").split("b", MI, "mo", "mi")
            patches = patches.order("mo", "ty", "tx", "mi", "c", "h", "w")
        else:
            patches = patches.repeated("c", "mi", extents["mi"])
            patches = patches.repeated("ty", "mo", extents["mo"])
        filters = filters.order(*slices, "mo", "mi", "c", "tap", "m")
        filters = filters.repeated("mi", "x", extents["x"]).repeated("x", "y", extents["y"])
        ids = tuple(f"item_{label}" for label in self.threads)
        zipped = build.zip_nd(len(self.threads), acc, patches.node, filters.node)
        return build.nest(ids, WorkItem(build, self.blocking, self.front, self.wide).sums, zipped)

    # -- sums of slices and of splits ------------------------------------------------------

    def added_slices(self, sums: Labelled, bias: Node | None) -> Node:
        """Slices written to local memory, from where work-items add them up.

        Neighbouring work-items write and read neighbouring vectors there. ``ka`` of them share
        the tile of one out; what they add up they write in its order in memory.
        """
        build = self.build
        ids = tuple(f"slice_{label}" for label in sums.labels)
        written = replace(sums, node=build.nest(ids, identity, sums.node))
        in_local = ("k", "r", "p", "m", "mo", "y", "x", "mi", "v")

        def read(slices: Node) -> Node:
            parts = Labelled(build, slices, in_local).order(*THREADS[1:], "k")
            return self.placed(self.added_cells(parts, bias)).node

        return build.let(to_local(written.order(*in_local).node), read)

    def added_cells(self, slices: Labelled, bias: Node | None) -> Labelled:
        """[mo][y][x][mi][k][r][p][m][v] -> [mo][y][x][mi][r][p][m][v]: slices added up."""
        build, extents = self.build, self.extents()
        threads = ("w", *THREADS[1:])
        arrays = [self.shared_out(slices).order(*threads, "k").node]
        if bias is not None:
            offsets = self.offsets(bias)
            for label, before in (("x", "mi"), ("y", "x"), ("p", "m"), ("r", "p")):
                offsets = offsets.repeated(before, label, extents[label])
            arrays.append(self.shared_out(offsets).order(*threads).node)
        order = ("v", "cell") if self.by_rows else ("cell", "v")

        def in_order(cells: Node) -> Node:
            return Labelled(build, cells, ("cell", "v")).order(*order).node

        def item(both: Node) -> Node:
            ids = tuple(f"out_{label}" for label in order)
            if bias is None:
                total = in_order(self.added(both))
                return build.nest(ids, lambda x: self.result(x, None), total)
            total, offset = in_order(self.added(get(both, 0))), in_order(get(both, 1))
            return build.nest(
                ids,
                lambda pair: self.result(get(pair, 0), get(pair, 1)),
                build.zip_nd(2, total, offset),
            )

        ids = tuple(f"out_{label}" for label in threads)
        array = arrays[0] if bias is None else build.zip_nd(len(ids), *arrays)
        made = Labelled(build, build.nest(ids, item, array), (*threads, *order))
        outer, middle, inner = self.cell_labels
        cells = made.order(*THREADS[1:], "w", "cell").merge("w", "cell", "cell")
        cells = cells.split("cell", extents[middle] * extents[inner], outer, "rest")
        return cells.split("rest", extents[inner], middle, inner)

    @property
    def cell_labels(self) -> tuple[str, str, str]:
        """The dimensions of a work-item's tile of vectors, as they are in memory."""
        return ("m", "r", "p") if self.by_rows else ("r", "p", "m")

    def shared_out(self, tiles: Labelled) -> Labelled:
        """[...][r][p][m][v] -> [...][w][cell][v]: work-items have an equal part of a tile each."""
        extents = self.extents()
        outer, middle, inner = self.cell_labels
        rest = tuple(label for label in tiles.labels if label not in TILE)
        cells = tiles.order(*rest, outer, middle, inner, "v")
        cells = cells.merge(outer, middle, "cell").merge("cell", inner, "cell")
        count = extents["r"] * extents["p"] * extents["m"]
        return cells.split("cell", exact_div(count, KA), "w", "cell")

    def added(self, slices: Node) -> Node:
        """[k][cell][v] -> [cell][v], in registers."""
        build, extents = self.build, self.extents()
        count = extents["r"] * extents["p"] * extents["m"]
        zeros = fill(0.0, exact_div(count, KA), V)
        labels = ("cell", "v")
        start = build.nest(tuple(f"start_{label}" for label in labels), identity, zeros)
        return Join(
            build.reduce(
                lambda acc, part: build.nest(
                    tuple(f"add_{label}" for label in labels),
                    lambda pair: call("add", get(pair, 0), get(pair, 1)),
                    build.zip_nd(len(labels), acc, part),
                ),
                to_private(start),
                slices,
                step="slice",
            )
        )

    def offsets(self, bias: Node) -> Labelled:
        """The bias of a block of filters as [mo][mi][m][v]."""
        offsets = Labelled(self.build, bias, ("f",)).split("f", TM, "b", "m")
        return offsets.split("b", MI, "mo", "mi").split("m", V, "m", "v")

    def sums(self) -> Node:
        """The second kernel: partial sums [s][n][gm][h][w] added up."""
        build, shape = self.build, self.shape
        labels = ("n", "gm", "h", "w")
        parts = Labelled(build, Ref("partial_sums"), ("s", *labels)).order(*labels, "s")
        offsets = None
        if self.epilogue.has_bias:
            offsets = Labelled(build, Ref(operands.BIAS), ("gm",))
            offsets = offsets.repeated(None, "w", shape.output_width)
            offsets = offsets.repeated("w", "h", shape.output_height)
            offsets = offsets.repeated("gm", "n", shape.batch)
        made = self.summed(tuple(f"sum_{label}" for label in labels), parts.node, offsets)
        result = Labelled(build, made, labels).split("gm", M, "g", "m")
        return operands.at_edge(shape, result)

    def summed(self, ids: tuple[str, ...], parts: Node, offsets: Labelled | None) -> Node:
        """[...][k] -> [...]: the last dimension added up, and what is to be done with a total."""
        build = self.build
        finish = self.epilogue.result if ids[0].startswith("sum") else self.result

        def total(terms: Node, offset: Node | None) -> Node:
            found = build.reduce(
                lambda acc, x: call("add", acc, x), Literal(0.0), terms, step="part"
            )
            return build.map(f"{ids[-1]}_total", lambda x: finish(x, offset), found)

        if offsets is None:
            made = build.nest(ids, lambda terms: total(terms, None), parts)
        else:
            zipped = build.zip_nd(len(ids), parts, offsets.node)
            made = build.nest(ids, lambda both: total(get(both, 0), get(both, 1)), zipped)
        return build.join_at(made, len(ids) - 1)
