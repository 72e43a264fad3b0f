"""Private arrays are declared once, however often the loop around them is written out.

PoCL keeps every declaration on the stack of the thread that runs a work-group: sixteen copies of
an array for each of 270 work-items overflowed it (vgg16/24, seed 1886451767).
"""

from __future__ import annotations

from typing import Any

import pytest

from bench.proofs.joint.printed_kernels import read_kernels
from bench.proofs.soundness.judges import Judge
from bench.proofs.soundness.replay import case_of, faults_of
from mapper.profiles import load_profile

DEVICE = load_profile("pocl")

#: A program over ``x``, rows of 4 x 2 x 300, and its maps but ``r``: all are sequential.
ONE_ARRAY = (
    """map#r(block => let sums = to_private(join(map#a(row =>
         let t = to_private(map#b(v => add(v, v), join(row))) in
         reduce((acc, e) => add(acc, e), 0.0, t), block))) in
       map#c(s => mul(s, 0.5), sums), x)""",
    "abc",
)
TWO_SCOPES = (
    """map#r(block => let sums = to_private(join(map#a(row =>
         let first = to_private(join(map#b(part =>
           let t = to_private(map#c(v => add(v, v), part)) in
           reduce((acc, e) => add(acc, e), 0.0, t), row))) in
         let second = to_private(join(map#d(part =>
           let u = to_private(map#e(v => mul(v, v), part)) in
           reduce((acc, e) => add(acc, e), 0.0, u), row))) in
         reduce((acc, e) => add(acc, e), 0.0,
           map#f(p => add(p.0, p.1), zip(first, second))), block))) in
       map#g(s => mul(s, 0.5), sums), x)""",
    "abcdefg",
)


def case(program: tuple[str, str]) -> dict[str, Any]:
    text, serial = program
    return {
        "program": f'program "p" {{ input x : [[[[float]300]2]4]6 kernel out = {text} }}',
        "assignment": {
            "mapping": {"r": "G0", **dict.fromkeys(serial, "S")},
            "local_sizes": {"out": [2, 1, 1]},
        },
    }


def test_an_array_in_an_unrolled_loop_is_declared_once() -> None:
    source = case_of(case(ONE_ARRAY), DEVICE).plan.source
    assert "p_sums_3" in source, "the sums are variables: the loop around the array is unrolled"
    assert source.count("float p_sum[600];") == 1


def test_arrays_of_different_scopes_do_not_become_alive_together() -> None:
    plan = case_of(case(TWO_SCOPES), DEVICE).plan
    (kernel,) = read_kernels(plan.source)
    assert kernel.private_bytes <= plan.launches[0].private_bytes
    assert [plan.source.count(f"float {name}[300];") for name in ("p_sum", "p_u")] == [1, 1]


@pytest.mark.kernels
@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
@pytest.mark.parametrize("program", [ONE_ARRAY, TWO_SCOPES], ids=["one array", "two scopes"])
def test_what_is_declared_once_is_right(judges: dict[str, Judge], program: tuple[str, str]) -> None:
    assert faults_of(case(program), DEVICE, judges) == []
