"""What a loop stores in memory that work-items share, and loads again, is not unrolled by a pragma.

PoCL 3.0-rc2 (LLVM 14) lost such sums: right in Oclgrind and without the pragma, wrong on PoCL
(`nestmap bench soundness --seed 5550009`, draft 1935).
"""

from __future__ import annotations

from typing import Any

import pytest

from bench.proofs.soundness.judges import Judge
from bench.proofs.soundness.replay import case_of, faults_of, refusals
from mapper.profiles import load_profile

DEVICE = load_profile("pocl")


def case(accumulator: str) -> dict[str, Any]:
    """Sums of four rows in groups of 4 x 4 work-items."""
    return {
        "program": f"""program "sums" {{ input x : [[[float]4]4]16 fun idv(v) = v + 0.0
          kernel out = map#m(rows => map#w(v => idv(v), join(reduce[unroll=1]((acc, row) =>
             let t = to_global(map#c(v => idv(v), row)) in
               map#u(q => add(q.0, q.1), zip(acc, t)),
             {accumulator}(map#z(v => idv(v), fill(0.25, 4))), rows))), x) }}""",
        "assignment": {
            "mapping": {"m": "G2", "c": "G0", "u": "G0", "z": "G0", "w": "G0"},
            "local_sizes": {"out": [4, 1, 4]},
        },
    }


def test_sums_in_shared_memory_have_no_pragma() -> None:
    source = case_of(case("to_global"), DEVICE).plan.source
    assert "for (index_t r_row = 0;" in source
    assert "#pragma unroll" not in source


@pytest.mark.kernels
@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
def test_sums_in_shared_memory_are_right(judges: dict[str, Judge]) -> None:
    value = case("to_global")
    assert refusals(value, DEVICE) == ()
    assert faults_of(value, DEVICE, judges) == []
