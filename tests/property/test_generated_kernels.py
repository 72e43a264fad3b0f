"""Whatever strict mode returns for a random program runs right: on PoCL, and for Oclgrind.

The campaign of tests/integration draws the same programs from seeds; here Hypothesis draws
them, looks where it finds it worth while, and makes small what fails.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, assume, given, settings

from bench.proofs.soundness.cases import Discarded, Draft, cases_of
from bench.proofs.soundness.judges import Judge, OclgrindJudge, PoclJudge
from bench.proofs.soundness.shrinking import draft_strategy
from mapper.profiles import load_profile
from tests.effort import cases

pytestmark = pytest.mark.kernels

DEVICE = load_profile("pocl")
PATIENT = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


@pytest.fixture(scope="module")
def judges() -> Iterator[tuple[Judge, ...]]:
    with PoclJudge() as pocl:
        yield OclgrindJudge(), pocl


@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
@settings(max_examples=cases(8, 15), suppress_health_check=PATIENT)
@given(draft_strategy())
def test_sampled_kernels_are_right_and_clean(judges: tuple[Judge, ...], draft: Draft) -> None:
    cases = cases_of(draft, DEVICE, 2)
    assume(not isinstance(cases, Discarded))
    assert not isinstance(cases, Discarded)
    assert [fault for judge in judges for fault in judge.judge(cases) if fault] == []
