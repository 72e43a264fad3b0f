"""A small soundness campaign: random programs, random strict mappings, none of them wrong.

One seed is fixed; the other is fresh and printed, so that every run looks somewhere new and
a failure can be reproduced (NESTMAP_CAMPAIGN_SEED=<seed>, or `nestmap bench soundness`).
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict

import pytest

from bench.proofs.soundness.campaign import Result, run_campaign
from bench.proofs.soundness.judges import OclgrindJudge, PoclJudge
from mapper.profiles import load_profile
from tests.effort import cases

pytestmark = pytest.mark.kernels

CASES = cases(8, 30)
FRESH_SEED = int(os.environ.get("NESTMAP_CAMPAIGN_SEED", secrets.randbelow(2**31)))


@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
@pytest.mark.parametrize(
    "seed", (pytest.param(1, id="fixed"), pytest.param(FRESH_SEED, id="fresh"))
)
def test_no_case_is_wrong(seed: int) -> None:
    print(f"seed {seed}")
    with PoclJudge() as pocl:
        judges = {"oclgrind": OclgrindJudge(), "pocl": pocl}
        result = run_campaign(Result(seed), CASES, load_profile("pocl"), judges)
    shown = json.dumps([asdict(failure) for failure in result.failures[:2]], indent=1)
    assert not result.failures, f"seed {seed}: {shown}"
    assert result.outcomes == {"right": CASES}
