"""The GPGPU'20 pipeline: pad, tiled partial convolution, reduction, crop.

"Auto-Generation of Specialized Direct Convolutions for Mobile GPUs" (GPGPU'20), section
4.2, Listing 4 and Tables 1 and 2. Tuning parameters: ``theta`` tile size in input rows and
columns, ``rho`` optimisational padding, ``kappa`` filters a work-group, ``sigma`` windows a
thread, ``omega`` input elements a thread reads in sequence, ``upsilon`` vector width,
``unroll`` and ``coalesce``. Vectors are formed before elements are reordered, so that a
coalesced chunk is read with whole vectors (docs/decisions). Output
[output_height][output_width][M].
"""

from __future__ import annotations

from mapper.ast_model.builders import (
    Builder,
    as_vector,
    call,
    fill,
    get,
    identity,
    reorder_stride,
    to_private,
)
from mapper.ast_model.index_expr import Expr, const, exact_div, floor_div, symbol
from mapper.ast_model.nodes import (
    Join,
    Kernel,
    Literal,
    Node,
    Parameter,
    Program,
    Ref,
    Relation,
    Requirement,
    Split,
    Zip,
)
from mapper.layer_spec import LayerSpec
from mapper.programs.common import (
    IMAGE,
    KH,
    KW,
    WEIGHTS,
    C,
    divisors,
    layer_inputs,
    layer_sizes,
    minus,
    padded_image,
)

THETA, RHO = symbol("theta"), symbol("rho")
KAPPA, SIGMA, OMEGA, UPSILON = (
    symbol("kappa"),
    symbol("sigma"),
    symbol("omega"),
    symbol("upsilon"),
)
UNROLL, COALESCE = symbol("unroll"), symbol("coalesce")

MAX_PADDING = 16
MAX_TILE = 34
MAX_WINDOWS_PER_THREAD = 16
MAX_FILTERS_PER_GROUP = 64
WINDOW = KH * KW * C


def partial_convolution(layer: LayerSpec) -> Program:
    """The program for one layer, four kernels."""
    build = Builder()
    step_y = THETA - (KH - layer.stride)
    step_x = THETA - (KW - layer.stride)
    stride = layer.stride
    windows_y = floor_div(THETA - KH, stride) + 1
    windows_x = floor_div(THETA - KW, stride) + 1

    padded = build.nest(
        ("pad_row", "pad_column", "pad_channel"),
        identity,
        padded_image(build, layer, Ref(IMAGE), RHO, RHO),
    )
    # [tiles_y][tiles_x][windows][kh][kw][C]
    tiles = build.slide_2d((THETA, THETA), (step_y, step_x), Ref("padded"), strict=True)
    tiles = build.at_depth(
        lambda tile: Join(build.slide_2d((KH, KW), (stride, stride), tile)), tiles, 2
    )
    # [tiles_y][tiles_x][windows/sigma][sigma][chunks][omega/upsilon] of vectors
    chunked = build.at_depth(_chunks, tiles, 3)
    grouped = build.split_at(SIGMA, chunked, 2)
    filters = build.split_at(KAPPA, build.layout_map(_chunks, Ref(WEIGHTS)), 0)
    partial = build.nest(
        ("tile_row", "tile_column"),
        lambda tile: build.map("filter_group", lambda group: _group(build, tile, group), filters),
        grouped,
    )
    # tiles_y tiles_x M/kappa windows/sigma chunks 1 sigma kappa
    #    0       1       2          3          4   5   6     7
    partial = build.permute((0, 1, 2, 7, 3, 6, 4, 5), partial)
    partial = build.join_at(partial, 6)

    # [tiles_y][tiles_x][M/kappa][kappa][windows/sigma][sigma][chunks]
    reduced = build.nest(
        ("sum_row", "sum_column", "sum_group", "sum_filter", "sum_window_group", "sum_window"),
        lambda chunks: build.reduce(
            lambda acc, x: call("add", acc, x), Literal(0.0), chunks, step="chunk"
        ),
        Ref("partial"),
    )
    # ... [1] -> [tiles_y][tiles_x][M][windows_y][windows_x] -> [rows][columns][M]
    for depth in (5, 4, 2):
        reduced = build.join_at(reduced, depth)
    reduced = build.split_at(windows_x, reduced, 3)
    reduced = build.permute((0, 3, 1, 4, 2), reduced)
    image = build.join_at(build.join_at(reduced, 2), 0)

    crop = exact_div(RHO, stride) if stride > 1 else RHO
    cropped = build.nest(
        ("crop_row", "crop_column", "crop_filter"),
        identity,
        build.pad_2d((0, minus(crop)), (0, minus(crop)), Ref("summed")),
    )
    return Program(
        name="partial_convolution",
        sizes=layer_sizes(layer),
        parameters=_parameters(layer),
        requirements=_requirements(layer, windows_y, windows_x),
        functions=(),
        inputs=layer_inputs(layer),
        kernels=(
            Kernel("padded", padded),
            Kernel("partial", partial),
            Kernel("summed", image),
            Kernel("cropped", cropped),
        ),
    )


def _chunks(window: Node) -> Node:
    """[kh][kw][C] as [window/omega][omega/upsilon] vectors, coalesced if asked for."""
    vectors = as_vector(UPSILON, Join(Join(window)))
    # With the number of chunks as stride, neighbouring chunks (threads) read neighbouring
    # vectors; a stride of 1 leaves the order as it is.
    stride = 1 + COALESCE * (exact_div(WINDOW, OMEGA) - 1)
    return Split(exact_div(OMEGA, UPSILON), reorder_stride(stride, vectors))


def _group(build: Builder, tile: Node, group: Node) -> Node:
    """Tile [windows/sigma][sigma][chunks][n] and group [kappa][chunks][n] of vectors."""
    group_chunks = build.permute((1, 0, 2), group)
    return build.map(
        "window_group",
        lambda wins: build.map(
            "chunk",
            lambda pair: _chunk(build, get(pair, 0), get(pair, 1)),
            Zip((build.permute((1, 0, 2), wins), group_chunks)),
        ),
        tile,
    )


def _chunk(build: Builder, inputs: Node, weights: Node) -> Node:
    """[sigma][n] and [kappa][n] vectors -> [1][sigma][kappa]."""
    initial = to_private(
        build.nest(("init_window", "init_filter"), identity, fill(0.0, SIGMA, KAPPA))
    )

    def step(acc: Node, pair: Node) -> Node:
        fetched = to_private(build.map("fetch", identity, get(pair, 0)))
        return build.let(
            fetched,
            lambda private: build.map(
                "accumulate_window",
                lambda row: build.map(
                    "accumulate_filter",
                    lambda item: call("dot_add", get(item, 0), get(row, 1), get(item, 1)),
                    Zip((get(row, 0), get(pair, 1))),
                ),
                Zip((acc, private)),
            ),
            name="fetched",
        )

    total = build.reduce(
        step,
        initial,
        Zip((build.permute((1, 0), inputs), build.permute((1, 0), weights))),
        unroll=UNROLL,
        step="vector",
    )
    return build.nest(("store", "store_window", "store_filter"), identity, total)


def _parameters(layer: LayerSpec) -> tuple[Parameter, ...]:
    kernel = max(layer.kernel_height, layer.kernel_width)
    largest = min(MAX_TILE, layer.padded_height + MAX_PADDING, layer.padded_width + MAX_PADDING)
    windows = {
        ((theta - layer.kernel_height) // layer.stride + 1)
        * ((theta - layer.kernel_width) // layer.stride + 1)
        for theta in range(kernel, largest + 1)
    }
    sigmas = {d for n in windows for d in divisors(n) if d <= MAX_WINDOWS_PER_THREAD}
    window = layer.accumulation_length
    return (
        Parameter("theta", tuple(range(kernel, largest + 1))),
        Parameter("rho", tuple(range(0, MAX_PADDING + 1))),
        Parameter("kappa", tuple(d for d in divisors(layer.filters) if d <= MAX_FILTERS_PER_GROUP)),
        Parameter("sigma", tuple(sorted(sigmas))),
        Parameter("omega", divisors(window)),
        Parameter("upsilon", tuple(v for v in (1, 2, 4, 8, 16) if window % v == 0)),
        Parameter("unroll", (0, 1)),
        Parameter("coalesce", (0, 1)),
    )


def _requirements(layer: LayerSpec, windows_y: Expr, windows_x: Expr) -> tuple[Requirement, ...]:
    """Conditions that the types do not state by themselves."""
    requirements = [Requirement(UPSILON, Relation.DIVIDES, OMEGA)]
    if layer.stride > 1:
        # The crop is whole (GPGPU'20, section 4.2.4) and no window straddles two tiles.
        requirements.append(Requirement(const(layer.stride), Relation.DIVIDES, RHO))
        requirements.append(Requirement(const(layer.stride), Relation.DIVIDES, THETA - KH))
        requirements.append(Requirement(const(layer.stride), Relation.DIVIDES, THETA - KW))
    return tuple(requirements)
