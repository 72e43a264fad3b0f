"""What the soundness campaign found: each case once was wrong and stays a test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mapper.profiles import load_profile
from nestmap.soundness.judges import Judge, OclgrindJudge, PoclJudge
from nestmap.soundness.replay import faults_of, refusals

DEVICE = load_profile("pocl")

#: Unrolled, an element of a border is one of registers that do not exist.
PADDED_REGISTERS = """program "p" { input x : [float]3
  kernel out = map#b(v => id(v), pad(1, 1, 0.5, to_private(map#a(e => id(e), x)))) }"""
CROPPED_REGISTERS = """program "p" { input x : [float]4
  kernel out = map#b(v => id(v), to_private(pad(-1, -1, 0.0, map#a(e => id(e), x)))) }"""
#: The result is cropped, so it is written lane by lane, but `q` is one vector in registers.
CROPPED_VECTORS = """program "p" { input x : [float]8
  kernel out = pad(0, -1, 0.0, as_scalar(
    map#a(v => let q = to_private(id(v)) in add(q, v), as_vector(4, x)))) }"""
#: The registers of `t` are written one by one and read as vectors.
SCALARS_READ_AS_VECTORS = """program "p" { input x : [[float]4]2
  kernel out = let t = to_private(map#a(r => map#aa(v => id(v), r), x)) in
    as_scalar(map#b(v => id(v), as_vector(4, join(t)))) }"""
#: PoCL 3.0-rc2 moved a load of `t` before the store that it reads from.
WRITTEN_EVERY_ROUND = """program "p" { input x : [[float]4]3
  kernel out =
    let sums = to_private(map#e(r => map#ee(v => id(v), r), join(
      reduce[unroll=1]((acc, rows) =>
        let t = to_global(map#b(r => map#bb(v => id(v), r), rows)) in
        map#c(r => map#cc(p => add(p.0, p.1), r), map#u(p => zip(p.0, p.1),
          zip(acc, map#w(r => reorder(reverse, r), t)))),
        to_private(map#a(r => map#aa(v => id(v), r), fill(0.25, 2, 2))),
        pad(-1, 0, 0.0, map#v(r => split(2, r), x)))))) in
    transpose(map#f(r => map#ff(p => sub(p.0, p.1), r),
                    map#z(p => zip(p.0, p.1), zip(sums, sums)))) }"""
_FUSED = ("S", "F", "S", "F", "S", "F", "S", "V2", "S", "F")
CASES = {
    "border of registers": (PADDED_REGISTERS, {"a": "S", "b": "S"}),
    "crop of registers": (CROPPED_REGISTERS, {"a": "S", "b": "S"}),
    "crop of vectors in registers": (CROPPED_VECTORS, {"a": "S"}),
    "scalars in registers read as vectors": (
        SCALARS_READ_AS_VECTORS,
        {"a": "S", "aa": "S", "b": "S"},
    ),
    "read back in every round": (
        WRITTEN_EVERY_ROUND,
        dict(zip(("a", "aa", "b", "bb", "c", "cc", "e", "ee", "f", "ff"), _FUSED, strict=True)),
    ),
}


@pytest.fixture(scope="module")
def judges() -> Iterator[dict[str, Judge]]:
    with PoclJudge() as pocl:
        yield {"oclgrind": OclgrindJudge(), "pocl": pocl}


@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
@pytest.mark.parametrize("name", CASES)
def test_a_case_that_was_wrong_is_right(judges: dict[str, Judge], name: str) -> None:
    program, mapping = CASES[name]
    case: dict[str, Any] = {"program": program, "assignment": {"mapping": mapping}}
    assert refusals(case, DEVICE) == ()
    assert faults_of(case, DEVICE, judges) == []
