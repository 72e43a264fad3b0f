"""The mid-level direct convolution of CC'22: tiled twice, cached in registers, reduced twice.

"Mapping Parallelism in a Functional IR through Constraint Satisfaction" (CC'22), sections
3.3 and 5.3. Its 43 concrete maps carry the numbers of the paper's artifact. A group of
``kg`` filters and a tile of ``th`` x ``tw`` windows meet in maps 28 to 30; within it ``sk``
filters and ``swy`` x ``swx`` windows in maps 51 to 53. There, maps 109 and 110 make one
partial sum for every ``wth`` kernel rows and ``icd`` channels of each ``td`` channels,
stepping through the rest in a sequential reduction that fetches inputs (208-212) and
weights (242-245) into private memory; maps 68 to 72 add the partial sums up.
Output [output_height][output_width][M]; the optimisational padding ``rho`` adds windows
below and to the right, which are dropped as results are written.
"""

from __future__ import annotations

from mapper.ast_model.builders import (
    Builder,
    call,
    fill,
    get,
    identity,
    to_local,
    to_private,
)
from mapper.ast_model.index_expr import symbol
from mapper.ast_model.nodes import Join, Kernel, Literal, Node, Parameter, Program, Ref, Zip
from mapper.layer_spec import LayerSpec
from mapper.programs.common import (
    IMAGE,
    WEIGHTS,
    divisors,
    divisors_of_range,
    layer_inputs,
    layer_sizes,
    minus,
    padded_image,
    windows,
)

RHO = symbol("rho")
TH, TW, TD = symbol("th"), symbol("tw"), symbol("td")
KG, SK, KC = symbol("kg"), symbol("sk"), symbol("kc")
SWY, SWX = symbol("swy"), symbol("swx")
WTH, WTW = symbol("wth"), symbol("wtw")
ICY, ICX, ICD = symbol("icy"), symbol("icx"), symbol("icd")

MAX_PADDING = 8
MAX_TILE = 32
MAX_PER_THREAD = 16


def direct_convolution(layer: LayerSpec) -> Program:
    """The program for one layer; tuning parameters as in the CC'22 paper, plus ``rho``."""
    build = Builder()
    # [OH][OW][kh][kw][C] -> [OH/th][OW/tw][th][tw][kh][kw][C]
    image_windows = windows(
        build,
        layer,
        padded_image(build, layer, Ref(IMAGE), RHO * layer.stride_y, RHO * layer.stride_x),
    )
    tiles = build.split_at(TW, build.split_at(TH, image_windows, 0), 2)
    tiles = build.permute((0, 2, 1, 3, 4, 5, 6), tiles)
    groups = build.split_at(KG, Ref(WEIGHTS), 0)
    result = build.map(
        28,
        lambda group: build.nest((29, 30), lambda tile: _tile(build, group, tile), tiles),
        groups,
    )
    # M/kg OH/th OW/tw kg/sk th/swy tw/swx sk swy swx 1 1
    #   0     1     2     3     4      5    6   7   8  9 10
    image = build.permute((1, 4, 7, 2, 5, 8, 0, 3, 6, 9, 10), result)
    for depth in (9, 8, 7, 6, 4, 3, 1, 0):
        image = build.join_at(image, depth)
    cropped = build.pad_2d((0, minus(RHO)), (0, minus(RHO)), image)
    return Program(
        name="direct_convolution",
        sizes=layer_sizes(layer),
        parameters=_parameters(layer),
        requirements=(),
        functions=(),
        inputs=layer_inputs(layer),
        kernels=(Kernel("convolution", cropped),),
    )


def _parameters(layer: LayerSpec) -> tuple[Parameter, ...]:
    def tile(extent: int) -> tuple[int, ...]:
        values = divisors_of_range(extent, extent + MAX_PADDING)
        return tuple(v for v in values if v <= MAX_TILE)

    def small(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(v for v in values if v <= MAX_PER_THREAD)

    rows, columns = tile(layer.output_height), tile(layer.output_width)
    filters, channels = divisors(layer.filters), divisors(layer.channels)
    return (
        Parameter("rho", tuple(range(MAX_PADDING + 1))),
        Parameter("kg", filters),
        Parameter("th", rows),
        Parameter("tw", columns),
        Parameter("sk", small(filters)),
        Parameter("swy", small(rows)),
        Parameter("swx", small(columns)),
        Parameter("td", channels),
        Parameter("wth", divisors(layer.kernel_height)),
        Parameter("wtw", divisors(layer.kernel_width)),
        Parameter("icd", small(channels)),
        Parameter("icy", small(rows)),
        Parameter("icx", small(columns)),
        Parameter("kc", small(filters)),
    )


def _tile(build: Builder, group: Node, tile: Node) -> Node:
    """One group of filters [kg][kh][kw][C] over one tile [th][tw][kh][kw][C]."""
    blocks = build.permute(
        (0, 2, 1, 3, 4, 5, 6), build.split_at(SWX, build.split_at(SWY, tile, 0), 2)
    )
    return build.map(
        51,
        lambda filters: build.nest((52, 53), lambda wins: _thread(build, filters, wins), blocks),
        build.split_at(SK, group, 0),
    )


def _thread(build: Builder, filters: Node, wins: Node) -> Node:
    """[sk][kh][kw][C] filters times [swy][swx][kh][kw][C] windows -> [sk][swy][swx][1][1]."""
    # Filters: sk kh/wth wth kw/wtw wtw C/td td/icd icd
    #           0   1     2    3     4    5    6     7
    k = build.split_at(ICD, build.split_at(TD, filters, 3), 4)
    k = build.split_at(WTW, k, 2)
    k = build.split_at(WTH, k, 1)
    # -> kh/wth td/icd (C/td kw/wtw) sk wth wtw icd
    k = build.join_at(build.permute((1, 6, 5, 3, 0, 2, 4, 7), k), 2)
    # Windows: swy swx kh/wth wth kw/wtw wtw C/td td/icd icd
    #           0   1    2     3    4     5    6    7     8
    w = build.split_at(ICD, build.split_at(TD, wins, 4), 5)
    w = build.split_at(WTW, w, 3)
    w = build.split_at(WTH, w, 2)
    # -> kh/wth td/icd (C/td kw/wtw) swy swx wth wtw icd
    w = build.join_at(build.permute((2, 7, 6, 4, 0, 1, 3, 5, 8), w), 2)
    partial = to_local(
        build.nest((109, 110), lambda part: _partial_sum(build, part), build.zip_nd(2, k, w))
    )

    def add_up(local: Node) -> Node:
        # kh/wth td/icd 1 sk swy swx 1 -> sk swy swx (kh/wth td/icd) 1
        sums = build.join_at(build.permute((3, 4, 5, 0, 1, 2, 6), local), 3)
        sums = build.join_at(sums, 3)
        return build.nest((68, 69, 70), lambda parts: _total(build, parts), sums)

    return build.let(partial, add_up, name="partial_sum")


def _partial_sum(build: Builder, part: Node) -> Node:
    """Steps of ([sk][wth][wtw][icd], [swy][swx][wth][wtw][icd]) -> [1][sk][swy][swx][1]."""
    initial = to_private(build.nest((283, 284, 285, 286), identity, fill(0.0, SK, SWY, SWX, 1)))
    total = build.reduce(
        lambda acc, step: _step(build, acc, step),
        initial,
        Zip((get(part, 0), get(part, 1))),
        step="step",
    )
    return build.nest((113, 114, 115, 116, 117), identity, total)


def _step(build: Builder, acc: Node, step: Node) -> Node:
    """Fetch, multiply and add one step into the accumulators [sk][swy][swx][1]."""
    # [swy][swx][wth][wtw][icd] -> [swy/icy][swx/icx][icy][icx][wth][wtw][icd]
    blocks = build.permute(
        (0, 2, 1, 3, 4, 5, 6), build.split_at(ICX, build.split_at(ICY, get(step, 1), 0), 2)
    )
    products = build.map(
        164,
        lambda kernels: build.nest(
            (165, 166), lambda block: _cached(build, kernels, block), blocks
        ),
        build.split_at(KC, get(step, 0), 0),
    )
    # sk/kc swy/icy swx/icx kc icy icx 1 -> sk swy swx 1
    sums = build.permute((0, 3, 1, 4, 2, 5, 6), to_private(products))
    for depth in (4, 2, 0):
        sums = build.join_at(sums, depth)
    return build.nest(
        (127, 128, 129, 130),
        lambda pair: call("add", get(pair, 0), get(pair, 1)),
        build.zip_nd(4, acc, sums),
    )


def _cached(build: Builder, kernels: Node, block: Node) -> Node:
    """[kc][wth][wtw][icd] filters times [icy][icx][wth][wtw][icd] -> [kc][icy][icx][1]."""
    # Each row of windows is fetched as [wth][wtw][icx][icd].
    rows = build.permute((0, 2, 3, 1, 4), block)
    inputs = to_private(
        build.map(208, lambda row: build.nest((209, 210, 211, 212), identity, row), rows)
    )
    weights = to_private(
        build.map(242, lambda kernel: build.nest((243, 244, 245), identity, kernel), kernels)
    )

    def multiply(cached_inputs: Node, cached_weights: Node) -> Node:
        cached_windows = build.permute((0, 3, 1, 2, 4), cached_inputs)
        return build.map(
            169,
            lambda kernel: build.nest(
                (170, 171),
                lambda window: build.reduce(
                    lambda a, x: call("fma", get(x, 0), get(x, 1), a),
                    Literal(0.0),
                    Zip((Join(Join(window)), Join(Join(kernel)))),
                    step="tap",
                ),
                cached_windows,
            ),
            cached_weights,
        )

    return build.let(
        inputs,
        lambda i: build.let(weights, lambda w: multiply(i, w), name="weights_cached"),
        name="image_cached",
    )


def _total(build: Builder, parts: Node) -> Node:
    """Partial sums [n][1] -> [1][1]."""
    initial = to_private(build.map(89, identity, fill(0.0, 1)))
    total = build.reduce(
        lambda acc, x: build.map(
            79, lambda pair: call("add", get(pair, 0), get(pair, 1)), Zip((acc, x))
        ),
        initial,
        parts,
        step="part",
    )
    return build.nest((71, 72), identity, total)
