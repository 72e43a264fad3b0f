"""What a search of a blocked variant on a processor begins with."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from mapper.constraint_rules.predicate import ParameterVariable
from mapper.layer_sets import named_layer
from mapper.layer_spec import Layout
from mapper.pipeline import generate_kernels
from mapper.profiles import load_profile
from mapper.rewrites.families import Family
from mapper.rewrites.shape import Shape
from nestmap.kernel_bench.blocked_proposals import BlockedProposals
from nestmap.kernel_bench.lone_cost import lone_cost
from nestmap.kernel_bench.search import quest

#: Two vectors of 7 pixels, one core's best tile on vgg16/10 by the model and by measuring.
BEST = {"tm": 32, "tr": 1, "tp": 7, "v": 16, "ut": 1, "rho_x": 0, "rho_y": 0}


@pytest.mark.parametrize("layout", [Layout.NHWC, Layout.NCHW16C])
def test_the_first_proposals_are_near_the_best_tile_of_all_by_the_model(layout: Layout):
    layer = replace(named_layer("vgg16/10"), layout=layout)
    wanted = quest(layer, "blocked", load_profile("pocl"))
    proposals = BlockedProposals(
        layer, "blocked", wanted.subject, wanted.space, wanted.profile, Family.SINGLE, 0
    )
    shape = Shape(layer, False)
    best = lone_cost(shape, BEST)
    costs = [
        lone_cost(shape, {v.name: x for v, x in chosen.items() if isinstance(v, ParameterVariable)})
        for chosen in proposals.propose(8)
    ]
    assert len(costs) == 8
    assert best <= min(costs) and max(costs) <= 1.15 * best


@pytest.mark.parametrize(
    ("channels", "lengths"),
    # Channels that are no whole blocks stay together.
    [(512, "[1][1][32][16][16][16]"), (24, "[1][1][16][16][24]")],
)
def test_pixels_with_their_channels_are_padded_in_blocks_of_channels(channels: int, lengths: str):
    layer = replace(named_layer("vgg16/24"), channels=channels)
    wanted = quest(layer, "blocked", load_profile("pocl"))
    proposals = BlockedProposals(
        layer, "blocked", wanted.subject, wanted.space, wanted.profile, Family.SINGLE, 0
    )
    plan = generate_kernels(wanted.subject, proposals.propose(1)[0])
    assert re.search(rf"padded +intermediate +float {re.escape(lengths)} ", plan.source)
