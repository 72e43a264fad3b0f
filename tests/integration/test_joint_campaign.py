"""A small joint campaign: what strict mode returns generates, fits and synchronises.

One seed is fixed; the other is fresh and printed, so that every run looks somewhere new and
a failure can be reproduced (NESTMAP_CAMPAIGN_SEED=<seed>).
"""

from __future__ import annotations

import json
import os
import secrets

import pytest

from bench.proofs.joint.campaign import CAMPAIGN_DEVICES, CAMPAIGN_VARIANTS, Cell, run_cell
from mapper.layer_sets import named_layer
from mapper.layer_spec import VGG16_UNIQUE
from tests.effort import cases

FRESH_SEED = int(os.environ.get("NESTMAP_CAMPAIGN_SEED", secrets.randbelow(2**31)))
SAMPLES = cases(6, 20)


@pytest.mark.parametrize(
    "seed", [pytest.param(1, id="fixed"), pytest.param(FRESH_SEED, id="fresh")]
)
@pytest.mark.parametrize("device", CAMPAIGN_DEVICES)
@pytest.mark.parametrize("variant", CAMPAIGN_VARIANTS)
def test_samples_generate_fit_and_synchronise(variant: str, device: str, seed: int):
    layer = named_layer(VGG16_UNIQUE[seed % len(VGG16_UNIQUE)])
    print(f"seed {seed}, {layer.name}")
    result = run_cell(Cell(layer, variant, device, SAMPLES, seed))
    assert not result.failed, f"seed {seed}: {json.dumps(result.failures[:3], indent=1)}"
    assert (result.drawn, result.distinct, result.passed) == (SAMPLES, SAMPLES, SAMPLES)
