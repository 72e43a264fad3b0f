"""Both judges find faults that are planted in a right case, and none in the case itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from mapper.profiles import load_profile
from nestmap.soundness.cases import Case
from nestmap.soundness.coverage import features
from nestmap.soundness.judges import Judge, OclgrindJudge, PoclJudge
from nestmap.soundness.replay import case_of, faults_of, refusals

pytestmark = pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
DEVICE = load_profile("pocl")
PROGRAM = """program "rows" { input x : [[float]8]3
  kernel out = map#a(row => map#c(v => id(v),
    reorder(reverse, to_local(map#b(v => add(v, 1.0), row)))), x) }"""
VALUE = {
    "program": PROGRAM,
    "assignment": {"mapping": {"a": "W0", "b": "L0", "c": "L0"}, "local_sizes": {"out": [4, 1, 1]}},
}


@pytest.fixture(scope="module")
def judges() -> Iterator[dict[str, Judge]]:
    with PoclJudge() as pocl:
        yield {"oclgrind": OclgrindJudge(), "pocl": pocl}


def with_source(case: Case, old: str, new: str) -> Case:
    assert old in case.plan.source
    return replace(case, plan=replace(case.plan, source=case.plan.source.replace(old, new)))


def test_a_right_case_is_right(judges: dict[str, Judge]) -> None:
    assert refusals(VALUE, DEVICE) == ()
    assert faults_of(VALUE, DEVICE, judges) == []


def test_a_lost_barrier_is_a_race(judges: dict[str, Judge]) -> None:
    case = with_source(case_of(VALUE, DEVICE), "barrier(CLK_LOCAL_MEM_FENCE);", "")
    (fault,) = judges["oclgrind"].judge([case])
    assert fault is not None
    assert "data-race" in fault.kind


def test_a_wrong_result_is_found_by_both_beside_right_ones(judges: dict[str, Judge]) -> None:
    right = case_of(VALUE, DEVICE)
    wrong = with_source(right, "1.0f", "2.0f")
    for judge in judges.values():
        first, second, third = judge.judge([right, wrong, right])
        assert first is None and third is None
        assert second is not None
        assert "wrong" in second.kind


def test_what_strict_mode_refuses_is_no_fault(judges: dict[str, Judge]) -> None:
    refused = {**VALUE, "assignment": {"mapping": {"a": "L0", "b": "W0", "c": "L0"}}}
    assert "local-hierarchy" in refusals(refused, DEVICE)
    assert faults_of(refused, DEVICE, judges) == []


def test_the_features_of_a_case_are_seen() -> None:
    found = features(case_of(VALUE, DEVICE))
    assert {
        ("depth of maps", "2"),
        ("kernels", "1"),
        ("code", "L0"),
        ("barriers", "1"),
        ("intermediate", "array, local"),
        ("view between producer and consumer", "reorder"),
        ("work-group", "2 to 16"),
    } <= found
    assert ("ragged", "yes") not in found
    three = {"mapping": {"a": "W0", "b": "L0", "c": "L0"}, "local_sizes": {"out": [3, 1, 1]}}
    assert ("ragged", "yes") in features(case_of({**VALUE, "assignment": three}, DEVICE))
