"""Tuning parameters of blocked convolutions, with their domains for a layer."""

from __future__ import annotations

from mapper.ast_model.index_expr import symbol
from mapper.ast_model.nodes import Parameter, Relation, Requirement
from mapper.programs.common import divisors
from mapper.rewrites.blocking import Blocking

# A work-group's tile: filters, rows and columns of the output; channels of a chunk.
BM, TH, TW, BC = symbol("bm"), symbol("th"), symbol("tw"), symbol("bc")
# A work-item's tile: rows, columns and filters; filters that neighbouring work-items share out.
TR, TP, TM, MI = symbol("tr"), symbol("tp"), symbol("tm"), symbol("mi")
# Vector widths of filters and of image rows; columns read beyond the needed ones.
V, PV, WIDE = symbol("v"), symbol("pv"), symbol("wide")
# Slices of a chunk within a group, work-items that add up what one has of each slice, splits of
# the channels over groups.
KS, KA, SP = symbol("ks"), symbol("ka"), symbol("sp")
# Whether the copies of the next chunk start early, with 2 into a second buffer.
PF = symbol("pf")
# Whether the taps of a kernel are written out.
UT = symbol("ut")
# Whether the channels that a work-item adds up of a chunk are written out.
UC = symbol("uc")
# The width of the vectors in which image rows are copied, the columns in front of a tile's that
# make its first vector whole, and the vectors from a tile to the next.
IV, FRONT, TV = symbol("iv"), symbol("front"), symbol("tv")
# Outputs that fill the last tiles up.
RHO_Y, RHO_X = symbol("rho_y"), symbol("rho_x")

MAX_BLOCK = 256
MAX_CHUNK = 64
MAX_PER_ITEM = 16
MAX_ROWS = 32
MAX_COLUMNS = 128
MAX_SLICES = 8
MAX_SPLITS = 32
VECTORS = (1, 2, 4, 8, 16)
#: Vectors that image rows may be copied in.
ROW_VECTORS = (2, 4)


def tile_sizes(length: int, most: int) -> tuple[int, ...]:
    """Tile sizes worth trying along this many outputs.

    Powers of two, what divides the length, and their doubles and quadruples up to where a tile
    would be filled up by more than it holds.
    """
    found = {1 << k for k in range(9)} | set(divisors(length))
    found |= {k * factor for k in divisors(length) for factor in (2, 4)}
    return tuple(sorted(k for k in found if k <= most and k < 2 * length))


def parameters_of(blocking: Blocking) -> tuple[Parameter, ...]:
    """The parameters of a blocking's program."""
    shape = blocking.shape
    sizes = dict(shape.sizes)
    filters, channels = divisors(sizes["M"]), divisors(sizes["C"])
    rows = tile_sizes(shape.output_height, MAX_ROWS)
    columns = tile_sizes(shape.output_width, MAX_COLUMNS)

    def upto(values: tuple[int, ...], most: int) -> tuple[int, ...]:
        return tuple(v for v in values if v <= most)

    found = [
        Parameter("bm", upto(filters, MAX_BLOCK)),
        Parameter("th", rows),
        Parameter("tw", columns),
        Parameter("bc", upto(channels, MAX_CHUNK)),
        Parameter("tr", upto(rows, MAX_PER_ITEM)),
        Parameter("tp", upto(columns, MAX_PER_ITEM)),
        Parameter("tm", upto(filters, 4 * MAX_PER_ITEM)),
        Parameter("mi", upto(filters, MAX_PER_ITEM)),
        Parameter("v", tuple(v for v in VECTORS if v in filters)),
        Parameter("rho_y", tuple(range(max(rows)))),
        Parameter("rho_x", tuple(range(max(columns)))),
    ]
    if blocking.image_in_registers:
        found += [Parameter("pv", (1, 2, 4)), Parameter("wide", (0, 1, 2, 3))]
    if blocking.vector_rows:
        widths = tuple(v for v in ROW_VECTORS if blocking.row_length % v == 0)
        layer = shape.computed
        fronts = {-layer.pad_left % v for v in widths}
        steps = {k * layer.stride_x // v for k in columns for v in widths} - {0}
        found += [
            Parameter("iv", widths),
            Parameter("front", tuple(sorted(fronts))),
            Parameter("tv", tuple(sorted(steps))),
        ]
    if blocking.prefetches:
        found.append(Parameter("pf", (0, 1, 2)))
    if blocking.unrolled:
        found.append(Parameter("ut", (0, 1)))
    if blocking.unrolled_channels:
        found.append(Parameter("uc", (0, 1)))
    if blocking.sliced:
        slices = upto(channels, MAX_SLICES)
        found.append(Parameter("ks", tuple(v for v in slices if v > 1)))
        found.append(Parameter("ka", slices))
    if blocking.split:
        found.append(Parameter("sp", tuple(v for v in upto(channels, MAX_SPLITS) if v > 1)))
    return tuple(found)


def requirements_of(blocking: Blocking) -> tuple[Requirement, ...]:
    """What the parameters must satisfy beyond what the types demand."""
    shape = blocking.shape
    found = [
        # Whole tiles, and none that holds nothing but filling.
        Requirement(TH, Relation.DIVIDES, RHO_Y + shape.output_height),
        Requirement(TW, Relation.DIVIDES, RHO_X + shape.output_width),
        Requirement(RHO_Y, Relation.LT, TH),
        Requirement(RHO_X, Relation.LT, TW),
    ]
    if blocking.image_in_registers:
        # Fewer columns more than a vector has.
        found.append(Requirement(WIDE, Relation.LT, PV))
    if blocking.vector_rows:
        layer = shape.computed
        wide = WIDE if blocking.image_in_registers else 0
        tile = (TW - 1) * layer.stride_x + shape.window_width + FRONT + wide
        found += [
            # Tiles and the image's border are whole vectors.
            Requirement(IV, Relation.DIVIDES, FRONT + layer.pad_left),
            Requirement(FRONT, Relation.LT, IV),
            Requirement(IV * TV, Relation.EQ, TW * layer.stride_x),
            Requirement(IV, Relation.DIVIDES, tile),
        ]
    if blocking.sliced:
        # Not more work-items than have computed.
        found.append(Requirement(KA, Relation.DIVIDES, KS))
    return tuple(found)
