"""What the soundness campaign found: each case once was wrong and stays a test."""

from __future__ import annotations

from typing import Any

import pytest

from bench.proofs.soundness.judges import Judge
from bench.proofs.soundness.replay import faults_of, refusals
from mapper.profiles import load_profile

pytestmark = pytest.mark.kernels

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
#: `d` is written in pairs and read in vectors of four: PoCL 3.0-rc2 lost what was written.
WRITTEN_IN_PAIRS = """program "p" { input x : [[float]8]36
  kernel out = map#g(r =>
    let d = to_private(map#a(v => add(v, v), r)) in
    let l = to_local(as_scalar(map#b(v => id(v), as_vector(4, d)))) in
    map#e(v => id(v), l), x) }"""
#: Rounds of work-items, a crop in front of them: PoCL 3.0-rc2 wrote what is cropped.
CROPPED_IN_ROUNDS = """program "p" {
  size N1 = 4
  param p1 in {0, 1}
  fun half(v) = v * 0.5
  fun mixed(v, w) = fma(v, 2.0, v - w)
  input x : [[[[[float]1]N1]2]3]2
  kernel one = reorder(reverse,
    join(
      map#m1(x1 =>
        let t9 = to_global(
          map#layout_v7(v7 =>
            map#layout_v8(v8 => split(1, v8), v7),
            pad(-1, 0, 0.0,
              map#m2(x2 =>
                map#m3(x3 =>
                  map#m4(x4 =>
                    map#m5(x5 =>
                      let t6 = half(x5) in
                      mixed(t6, x5),
                      x4
                    ),
                    x3
                  ),
                  x2
                ),
                x1
              )
            )
          )
        ) in
        map#layout_v26(v26 =>
          split(2, v26),
          map#layout_v23(v23 =>
            map#layout_v24(v24 => map#layout_v25(v25 => reorder(stride(1), v25), v24), v23),
            map#m6(x10 =>
              let t19 = to_private(
                map#layout_v18(v18 =>
                  reorder(stride(4), v18),
                  map#layout_v16(v16 =>
                    map#layout_v17(v17 => join(v17), v16),
                    map#m7(x11 =>
                      map#m8(x12 =>
                        map#m9(x13 =>
                          reduce[unroll=p1]((acc14, x15) => max(acc14, x15), -1000.0, x13), x12),
                        x11
                      ),
                      x10
                    )
                  )
                )
              ) in
              map#m10(x20 => map#m11(x21 => map#m12(x22 => add(x22, 1.5), x21), x20), t19),
              t9
            )
          )
        ),
        x
      )
    )
  )
}"""
_FUSED = ("S", "F", "S", "F", "S", "F", "S", "V2", "S", "F")


def case(program: str, mapping: dict[str, str], **rest: Any) -> dict[str, Any]:
    """A case as campaigns write it; ``rest`` are its options and the assignment's other parts."""
    options = {"options": rest.pop("options")} if "options" in rest else {}
    return {"program": program, "assignment": {"mapping": mapping, **rest}, **options}


CASES = {
    "border of registers": case(PADDED_REGISTERS, {"a": "S", "b": "S"}),
    "crop of registers": case(CROPPED_REGISTERS, {"a": "S", "b": "S"}),
    "crop of vectors in registers": case(CROPPED_VECTORS, {"a": "S"}),
    "scalars in registers read as vectors": case(
        SCALARS_READ_AS_VECTORS, {"a": "S", "aa": "S", "b": "S"}
    ),
    "read back in every round": case(
        WRITTEN_EVERY_ROUND,
        dict(zip(("a", "aa", "b", "bb", "c", "cc", "e", "ee", "f", "ff"), _FUSED, strict=True)),
    ),
    "vectors of two widths in one array": case(
        WRITTEN_IN_PAIRS,
        {"g": "W1", "a": "V2", "b": "L1", "e": "L1"},
        local_sizes={"out": [1, 8, 1]},
        options={"sequential_fusion": True, "replicate_private": True},
    ),
    "crop in rounds of work-items": case(
        CROPPED_IN_ROUNDS,
        {
            **{"m1": "W2", "m2": "S", "m3": "L2", "m4": "F", "m5": "S", "m6": "L2"},
            **dict.fromkeys(("m7", "m8", "m9", "m10", "m11", "m12"), "S"),
        },
        parameters={"p1": 0},
        local_sizes={"one": [1, 1, 7]},
    ),
}


@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
@pytest.mark.parametrize("name", CASES)
def test_a_case_that_was_wrong_is_right(judges: dict[str, Judge], name: str) -> None:
    assert refusals(CASES[name], DEVICE) == ()
    assert faults_of(CASES[name], DEVICE, judges) == []
