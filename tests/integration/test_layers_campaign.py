"""A small campaign: random strict candidates on PoCL and in Oclgrind, all of them right.

One seed is fixed; the other is fresh and printed, so that every run looks somewhere new and
a failure can be reproduced (NESTMAP_CAMPAIGN_SEED=<seed>).
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator

import pytest

from bench.proofs.layers.campaign import CAMPAIGN_VARIANTS, Cell, CellResult, Limits, Part, run_cell
from mapper.layer_sets import named_layer
from mapper.layer_spec import LayerSpec
from tests.effort import LONG, cases
from worker.measuring import MeasuringChild

pytestmark = pytest.mark.kernels

FRESH_SEED = int(os.environ.get("NESTMAP_CAMPAIGN_SEED", secrets.randbelow(2**31)))
SEEDS = (pytest.param(1, id="fixed"), pytest.param(FRESH_SEED, id="fresh"))
COUNT = cases(2, 4)
STRIDED = LayerSpec(4, 9, 7, 4, 3, 3, 2, 1, 1, 1, 1, name="strided")


@pytest.fixture(scope="module")
def device() -> Iterator[MeasuringChild]:
    with MeasuringChild() as child:
        yield child


# PoCL takes minutes to compile what some mappings unroll: slow, but not wrong.
LIMITS = Limits(full_s=30.0, scaled_s=30.0)


def assert_all_right(result: CellResult, kind: str, count: int) -> None:
    """Nothing wrong, all candidates tried, and not all of many too slow to tell."""
    assert not result.failures, f"seed {result.seed}: {json.dumps(result.failures[:3], indent=1)}"
    outcomes = dict(result.outcomes)
    slow = outcomes.pop("timeout", 0)
    told = {} if slow == count and not LONG else {kind: count - slow}
    assert outcomes == told, f"seed {result.seed}"


@pytest.mark.parametrize("seed", SEEDS if LONG else SEEDS[1:])
@pytest.mark.parametrize("variant", CAMPAIGN_VARIANTS)
@pytest.mark.parametrize(
    "layer", [named_layer("vgg16/0"), named_layer("vgg16/24")], ids=lambda layer: layer.name
)
def test_candidates_run_right(device: MeasuringChild, layer: LayerSpec, variant: str, seed: int):
    print(f"seed {seed}")
    assert_all_right(
        run_cell(Cell(layer, variant, Part.SCALED, COUNT, seed), device, LIMITS), "timed", COUNT
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("variant", CAMPAIGN_VARIANTS)
def test_strided_candidates_run_right(device: MeasuringChild, variant: str, seed: int):
    print(f"seed {seed}")
    assert_all_right(
        run_cell(Cell(STRIDED, variant, Part.FULL, COUNT, seed), device, LIMITS), "timed", COUNT
    )


@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("variant", CAMPAIGN_VARIANTS)
def test_candidates_are_clean_in_oclgrind(device: MeasuringChild, variant: str, seed: int):
    print(f"seed {seed}")
    layer = named_layer("vgg16/5")
    assert_all_right(
        run_cell(Cell(layer, variant, Part.OCLGRIND, COUNT, seed), device, Limits()), "clean", COUNT
    )
