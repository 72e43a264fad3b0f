"""What a search of a blocked variant on a processor begins with."""

from __future__ import annotations

import re
from dataclasses import replace
from math import ceil

import numpy as np
import pytest

from mapper.ast_model.interpreter import interpret
from mapper.constraint_rules.predicate import (
    CodeVariable,
    LocalSizeVariable,
    ParameterVariable,
)
from mapper.layer_sets import named_layer
from mapper.layer_spec import LayerSpec, Layout
from mapper.pipeline import choices_of, generate_kernels
from mapper.profiles import load_profile
from mapper.rewrites.families import Family
from mapper.rewrites.shape import Shape
from mapper.schedule import ScheduleCode
from nestmap.device_limits import limits_of_device
from nestmap.tuning.proposals.blocked_proposals import EXPLORED, Assignment, BlockedProposals
from nestmap.tuning.proposals.lone_cost import lone_cost
from nestmap.tuning.reference import make_workload
from tests.kernels import run_once
from tests.spaces import Derived, derived

#: Two vectors of 7 pixels, one core's best tile on vgg16/10 by the model and by measuring.
BEST = {"tm": 32, "tr": 1, "tp": 7, "v": 16, "ut": 1, "rho_x": 0, "rho_y": 0}
#: The same where there are 16 registers of 8 floats.
BEST_OF_16 = {"tm": 16, "tr": 1, "tp": 4, "v": 8, "ut": 1, "rho_x": 0, "rho_y": 0}


@pytest.mark.parametrize("layout", [Layout.NHWC, Layout.NCHW16C])
@pytest.mark.parametrize(
    ("device", "tile"), [("pocl", BEST), ("pocl@haswell", BEST_OF_16)], ids=["AVX-512", "AVX2"]
)
def test_the_first_proposals_are_near_the_best_tile_of_all_by_the_model(
    layout: Layout, device: str, tile: dict[str, int]
):
    layer = replace(named_layer("vgg16/10"), layout=layout)
    wanted = derived(layer, "blocked", limits_of_device(device))
    proposals = BlockedProposals(
        layer, "blocked", wanted.subject, wanted.space, wanted.profile, Family.SINGLE, 0
    )
    shape = Shape(layer, False)
    best = lone_cost(shape, wanted.profile, tile)
    costs = [
        lone_cost(
            shape,
            wanted.profile,
            {v.name: x for v, x in chosen.items() if isinstance(v, ParameterVariable)},
        )
        for chosen in proposals.propose(8)
    ]
    assert len(costs) == 8
    assert best <= min(costs) and max(costs) <= 1.5 * best
    # Of 16 registers fewer tiles are good.
    assert sum(cost <= 1.15 * best for cost in costs) >= (8 if device == "pocl" else 4)


@pytest.mark.parametrize(
    ("channels", "layout", "lengths"),
    # Channels that are no whole blocks stay together.
    [
        (512, Layout.NHWC, r"\[32\]\[\d+\]\[\d+\]\[16\]"),
        (24, Layout.NHWC, r"\[\d+\]\[\d+\]\[24\]"),
        (32, Layout.NCHW16C, r"\[2\]\[\d+\]\[\d+\]\[16\]"),
        (3, Layout.NCHW16C, r"\[\d+\]\[\d+\]\[3\]"),
    ],
)
def test_pixels_with_their_channels_are_padded_in_blocks_of_channels(
    channels: int, layout: Layout, lengths: str
):
    layer = replace(named_layer("vgg16/24"), channels=channels, layout=layout)
    wanted = derived(layer, "blocked", load_profile("pocl"))
    proposals = BlockedProposals(
        layer, "blocked", wanted.subject, wanted.space, wanted.profile, Family.SINGLE, 0
    )
    plan = generate_kernels(wanted.subject, proposals.propose(1)[0])
    assert re.search(rf"padded +intermediate +float \[1\]\[1\]{lengths} ", plan.source)


SMALL = LayerSpec(channels=3, height=19, width=19, filters=32, kernel_height=3, kernel_width=3,
                  pad_top=1, pad_left=1, pad_bottom=1, pad_right=1, layout=Layout.NHWC)  # fmt: skip


@pytest.mark.kernels
def test_what_is_known_is_tried_again_in_groups_of_each_size_and_all_are_right() -> None:
    wanted = derived(SMALL, "blocked", load_profile("pocl"))

    def proposals(*known: Assignment) -> BlockedProposals:
        return BlockedProposals(
            SMALL,
            "blocked",
            wanted.subject,
            wanted.space,
            wanted.profile,
            Family.SINGLE,
            0,
            known,
            recoded=True,
        )

    size = LocalSizeVariable("convolution", 0)
    known = next(chosen for chosen in proposals().propose(8) if chosen[size] == 4)
    first, *again = proposals(known).propose(4)
    assert first == known
    assert sorted(chosen[size] for chosen in again) == [1, 1, 16]
    rows = [chosen for chosen in again if chosen[CodeVariable("tile_x")] == ScheduleCode.SEQUENTIAL]
    assert [chosen[size] for chosen in rows] == [1], "a row of tiles for each work-item"
    in_rows = generate_kernels(wanted.subject, rows[0])
    assert re.search(r"for \(index_t i_tile_x = 0", in_rows.source)
    of_known = {v: value for v, value in known.items() if isinstance(v, ParameterVariable)}
    inputs = make_workload(wanted.subject, 1, {}).inputs
    assert wanted.subject.program is not None
    tiles = ceil(19 / known[ParameterVariable("tr")]) * ceil(19 / known[ParameterVariable("tp")])
    assert tiles % 16
    for chosen in (first, *again):
        assert of_known.items() <= chosen.items()
        parameters = dict(choices_of(chosen).parameters)
        plan = generate_kernels(wanted.subject, chosen)
        assert f"reqd_work_group_size({chosen[size]}, 1, 1)" in plan.source
        # What is left over of the last group does nothing.
        expected = interpret(wanted.subject.program, parameters, inputs)
        np.testing.assert_allclose(run_once(plan, inputs), expected, rtol=1e-4, atol=1e-4)


def test_later_proposals_stand_in_groups_of_other_sizes_than_the_best() -> None:
    wanted = derived(SMALL, "blocked", load_profile("pocl"))
    proposals = BlockedProposals(
        SMALL, "blocked", wanted.subject, wanted.space, wanted.profile, Family.SINGLE, 0
    )
    size = LocalSizeVariable("convolution", 0)
    drawn = proposals.propose(EXPLORED)
    alone = [chosen for chosen in drawn if chosen[size] == 1]
    for one in drawn:
        proposals.tell(one, 1.0 if one in alone else 9.0)
    sizes = [chosen[size] for chosen in proposals.propose(64)]
    assert set(sizes) == {1, 4, 16}
    # The best stand alone, so most of what is changed does too.
    assert sizes.count(1) > 32


@pytest.mark.kernels
@pytest.mark.parametrize("layout", [Layout.NHWC, Layout.NCHW16C])
def test_channels_of_a_block_are_padded_as_a_vector(layout: Layout) -> None:
    layer = replace(SMALL, channels=32, layout=layout)
    wanted, first = first_with(layer, 16)
    assert wanted.subject.program is not None
    plan = generate_kernels(wanted.subject, first)
    assert re.search(r"pad_channel +16 +V16 ", plan.source)
    inputs = make_workload(wanted.subject, 1, {}).inputs
    expected = interpret(wanted.subject.program, dict(choices_of(first).parameters), inputs)
    np.testing.assert_allclose(run_once(plan, inputs), expected, rtol=1e-4, atol=1e-4)


def test_channels_of_a_group_within_a_block_are_padded_one_by_one() -> None:
    """They are no neighbours, and their vectors of filters are proposed all the same."""
    layer = replace(SMALL, channels=32, groups=8, layout=Layout.NCHW16C)
    wanted, first = first_with(layer, 4)
    assert re.search(r"pad_channel +4 +F ", generate_kernels(wanted.subject, first).source)


def first_with(layer: LayerSpec, width: int) -> tuple[Derived, Assignment]:
    """The first proposal of `blocked` in vectors of so many filters."""
    wanted = derived(layer, "blocked", load_profile("pocl"))
    proposals = BlockedProposals(
        layer, "blocked", wanted.subject, wanted.space, wanted.profile, Family.SINGLE, 0
    )
    vectors = ParameterVariable("v")
    return wanted, next(one for one in proposals.propose(24) if one[vectors] == width)


def test_bands_of_one_tile_are_proposed_where_a_layer_has_no_more() -> None:
    one_row = LayerSpec(channels=32, height=1, width=1, filters=16, kernel_height=1, kernel_width=1)
    wanted = derived(one_row, "blocked-bands", load_profile("pocl"))
    proposals = BlockedProposals(
        one_row, "blocked-bands", wanted.subject, wanted.space, wanted.profile, Family.SINGLE, 0
    )
    assert len(proposals.propose(2)) == 2
