"""Rewrites keep the meaning of a convolution, alone and in chains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mapper.ast_model.interpreter import interpret
from mapper.ast_model.type_check import check_program
from mapper.ast_model.types import dimensions
from mapper.layer_spec import LayerSpec
from mapper.programs.high_level import high_level_convolution
from mapper.rewrites.blocking import Blocking
from mapper.rewrites.catalogue import CHAINS, blocked_program
from mapper.rewrites.lowering import program_of
from mapper.rewrites.parameters import ROW_VECTORS, tile_sizes
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
    UnrollTaps,
    UnrollWindows,
    WeightsToLocal,
    WeightsToRegisters,
)
from tests.effort import cases

REWRITES: tuple[Rewrite, ...] = (
    FlattenPixels(),
    UnrollWindows(),
    PackWeights(),
    UnrollTaps(),
    ContractSums(),
    PadImage(),
    ImageToLocal(),
    WeightsToLocal(),
    ImageToRegisters(),
    WeightsToRegisters(),
    WeightsToRegisters(by_row=True),
    SliceChannels(),
    SplitChannels(),
    HoldSums(),
)


@st.composite
def layers(draw: st.DrawFn) -> LayerSpec:
    groups = draw(st.sampled_from((1, 1, 2)))
    kernel_y, kernel_x = draw(st.sampled_from(((1, 1), (3, 3), (1, 3), (2, 3))))
    dilation = draw(st.sampled_from((1, 1, 2)))
    height = draw(st.integers(dilation * (kernel_y - 1) + 1, 7))
    width = draw(st.integers(dilation * (kernel_x - 1) + 1, 7))
    pads = [draw(st.integers(0, k - 1)) for k in (kernel_y, kernel_x, kernel_y, kernel_x)]
    return LayerSpec(
        channels=groups * draw(st.sampled_from((2, 4))),
        height=height,
        width=width,
        filters=groups * draw(st.sampled_from((2, 4))),
        kernel_height=kernel_y,
        kernel_width=kernel_x,
        stride_y=draw(st.integers(1, 2)),
        stride_x=draw(st.integers(1, 2)),
        dilation_y=dilation,
        dilation_x=dilation,
        pad_top=pads[0],
        pad_left=pads[1],
        pad_bottom=pads[2],
        pad_right=pads[3],
        batch=draw(st.integers(1, 2)),
        groups=groups,
        bias=draw(st.booleans()),
        activation=draw(st.sampled_from(("none", "relu", "relu6", "leaky_relu", "sigmoid"))),
        layout=draw(st.sampled_from(("NCHW", "NHWC", "NCHW16c"))),
    )


@st.composite
def chains(draw: st.DrawFn, layer: LayerSpec) -> Blocking:
    blocking = Blocking(layer)
    for rewrite in draw(st.lists(st.sampled_from(REWRITES), max_size=7)):
        if rewrite.why_not(blocking) is None:
            blocking = rewrite.apply(blocking)
    return blocking


@st.composite
def values_of(draw: st.DrawFn, blocking: Blocking) -> dict[str, int]:
    """Values of the tuning parameters that the program's types accept."""
    shape = blocking.shape
    sizes = dict(shape.sizes)

    def divisor(number: int) -> int:
        return draw(st.sampled_from([k for k in range(1, number + 1) if number % k == 0]))

    th = draw(st.sampled_from(tile_sizes(shape.output_height, 4)))
    tw = draw(st.sampled_from(tile_sizes(shape.output_width, 4)))
    split = draw(st.sampled_from((2,))) if blocking.split else 1
    slices = 2 if blocking.sliced else 1
    channels = sizes["C"] // split
    chunks = [k for k in range(1, channels + 1) if channels % k == 0 and k % slices == 0]
    if not chunks:
        return {}
    bm = divisor(sizes["M"])
    tm = divisor(bm)
    tp = divisor(tw)
    values = {
        "th": th,
        "tw": tw,
        "rho_y": -shape.output_height % th,
        "rho_x": -shape.output_width % tw,
        "bm": bm,
        "tm": tm,
        "mi": divisor(bm // tm),
        "v": draw(st.sampled_from([v for v in (1, 2, 4) if tm % v == 0])),
        "tr": divisor(th),
        "tp": tp,
        "bc": draw(st.sampled_from(chunks)),
    }
    layer = shape.computed
    window = (sizes["kw"] - 1) * layer.dilation_x + 1
    front = 0
    if blocking.vector_rows:
        rows = draw(st.sampled_from([v for v in ROW_VECTORS if blocking.row_length % v == 0]))
        front = -layer.pad_left % rows
        values |= {"iv": rows, "front": front, "tv": tw * layer.stride_x // rows}
    if blocking.image_in_registers:
        patch = (tp - 1) * layer.stride_x + window + front
        vector = draw(st.sampled_from((1, 2, 4)))
        values |= {"pv": vector, "wide": -patch % vector}
    if blocking.vector_rows:
        tile = (tw - 1) * layer.stride_x + window + front + values.get("wide", 0)
        if tile % values["iv"] or tw * layer.stride_x % values["iv"]:
            return {}
    if blocking.unrolled_channels:
        values["uc"] = draw(st.integers(0, 1))
    if blocking.prefetches:
        values["pf"] = draw(st.integers(0, 2))
    if blocking.unrolled:
        values["ut"] = draw(st.integers(0, 1))
    if blocking.sliced:
        values["ks"] = slices
        vectors = values["tr"] * tp * tm // values["v"]
        values["ka"] = draw(st.sampled_from([n for n in (1, 2) if vectors % n == 0]))
    if blocking.split:
        values["sp"] = split
    return values


def buffers(layer: LayerSpec, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    program = high_level_convolution(layer)
    sizes = dict(program.sizes)
    found = {}
    for item in program.inputs:
        shape = [length.evaluate(sizes) for length in dimensions(item.type)[0]]
        found[item.name] = random.integers(-3, 4, shape).astype(np.float32)
    return found


def assert_computes(layer: LayerSpec, blocking: Blocking, values: dict[str, int]) -> None:
    """The program of a blocking gives what the high-level one does."""
    program = program_of(blocking)
    check_program(program)
    arrays = buffers(layer, 1)
    wanted = interpret(high_level_convolution(layer), {}, arrays)
    found = interpret(program, values, arrays)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@settings(
    deadline=None,
    max_examples=cases(50, 120),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data(), layers())
def test_every_chain_of_rewrites_computes_the_convolution(
    data: st.DataObject, layer: LayerSpec
) -> None:
    blocking = data.draw(chains(layer))
    values = data.draw(values_of(blocking))
    if not values:
        return
    assert_computes(layer, blocking, values)


@settings(
    deadline=None,
    max_examples=cases(25, 60),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data(), layers(), st.sampled_from((2, 4, 6)))
def test_channels_in_the_lanes_of_vectors_compute_a_depthwise_convolution(
    data: st.DataObject, layer: LayerSpec, groups: int
) -> None:
    layer = replace(layer, channels=groups, filters=groups, groups=groups, layout="NHWC")
    blocking = ChannelLanes().apply(Blocking(layer, packed=data.draw(st.booleans())))
    for rewrite in REWRITES:
        if rewrite.why_not(blocking) is None and data.draw(st.booleans()):
            blocking = rewrite.apply(blocking)
    values = data.draw(values_of(blocking))
    assert_computes(layer, blocking, values)


def test_lanes_are_refused_where_filters_share_channels_and_refuse_what_shares() -> None:
    lanes = ChannelLanes()
    for layer, field in (
        (LayerSpec(channels=8, height=6, width=6, filters=8, groups=4), "layer.channels"),
        (LayerSpec(channels=8, height=6, width=6, filters=16, groups=8), "layer.filters"),
        (LayerSpec(channels=1, height=6, width=6, filters=1), "layer.groups"),
        (LayerSpec(8, 6, 6, 8, groups=8, layout="NCHW"), "layer.layout"),
    ):
        problem = lanes.why_not(Blocking(layer))
        assert problem is not None and problem.path == field
    depthwise = Blocking(LayerSpec(channels=8, height=6, width=6, filters=8, groups=8))
    assert lanes.why_not(ImageToLocal().apply(depthwise)) is not None
    inside = lanes.apply(depthwise)
    allowed = [r.name for r in REWRITES if r.why_not(inside) is None]
    assert allowed == ["pack-weights", "unroll-taps", "contract-sums"]


@pytest.mark.parametrize("name", sorted(CHAINS))
def test_the_offered_chains_type_check(name: str) -> None:
    layer = LayerSpec(channels=8, height=14, width=14, filters=16, layout="NCHW")
    if name == "channelwise":
        layer = replace(layer, filters=8, groups=8, layout="NHWC")
    check_program(blocked_program(layer, name))
