"""Both judges find faults that are planted in a right case, and none in the case itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.proofs.soundness.cases import Case
from bench.proofs.soundness.coverage import features
from bench.proofs.soundness.judges import COMPILER_CRASH, Judge
from bench.proofs.soundness.replay import case_of, faults_of, refusals
from mapper.profiles import load_profile

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.needs("oclgrind", install="apt-get install oclgrind"),
]
DEVICE = load_profile("pocl")
PROGRAM = """program "rows" { input x : [[float]8]3
  kernel out = map#a(row => map#c(v => id(v),
    reorder(reverse, to_local(map#b(v => add(v, 1.0), row)))), x) }"""
VALUE = {
    "program": PROGRAM,
    "assignment": {"mapping": {"a": "W0", "b": "L0", "c": "L0"}, "local_sizes": {"out": [4, 1, 1]}},
}


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


#: Draft 57 of seed 20261121, made small: PoCL 3.0-rc2 (LLVM 14) dies while it vectorises it.
KILLS_THE_COMPILER = {
    "options": {"sequential_fusion": True, "replicate_private": False},
    "assignment": {
        "mapping": {
            "m1": "S", "m2": "W0", "m3": "L0", "m4": "V2", "m5": "L0", "m6": "S", "m7": "L0",
            "m8": "S", "m9": "L0", "m10": "F", "m11": "S", "m12": "F", "m13": "F", "m14": "G2",
        },
        "local_sizes": {"one": [2, 1, 1], "two": [1, 1, 1]},
    },
    "program": """
program "random" {
  size N1 = 3
  input x : [[[float]4]3]N1
  kernel one = map#m1(x2 =>
    map#m2(x3 =>
      map#m9(x16 =>
        map#m10(x17 => id(x17), x16),
        to_global(
          reorder(reverse,
            transpose(
              map#layout_v15(v15 =>
                join(v15),
                map#m7(x11 =>
                  map#m8(x12 =>
                    reduce[unroll=1]((acc13, x14) => max(acc13, x14), to_local(-1000.0), x12),
                    x11
                  ),
                  to_local(
                    reduce((acc6, x7) =>
                      map#m5(x9 =>
                        map#m6(x10 => add(x10.0, x10.1), x9),
                        map#layout_v8(v8 => zip(v8.0, v8.1), zip(acc6, reorder(reverse, x7)))
                      ),
                      map#m3(x4 => map#m4(x5 => id(x5), x4), fill(0.25, 3, 4)),
                      x3
                    )
                  )
                )
              )
            )
          )
        )
      ),
      x2
    ),
    slide(2, 1, map#layout_v1(v1 => split(3, v1), x))
  )
  kernel two = map#m11(x18 =>
    map#m12(x19 => map#m13(x20 => map#m14(x21 => add(x21, 1.5), x20), x19), x18),
    transpose(one)
  )
}
""",
}  # fmt: skip


def test_a_crash_of_the_compiler_is_told_from_one_of_the_kernel(judges: dict[str, Judge]) -> None:
    right = case_of(KILLS_THE_COMPILER, DEVICE)
    assert judges["oclgrind"].judge([right]) == [None]
    (fault,) = judges["pocl"].judge([right])
    if fault is not None:  # a newer PoCL compiles it
        assert (fault.kind, fault.of_judge) == (COMPILER_CRASH, True)
    crashing = with_source(right, "l_sum[i_m5*4 + i_m6] =", "l_sum[(i_m5 + 1) * 100000000] =")
    (fault,) = judges["pocl"].judge([crashing])
    assert fault is not None
    assert not fault.of_judge
