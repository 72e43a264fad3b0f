"""Private arrays of vectors, and copies in vectors, only where both mean what they meant."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest

from mapper.ast_model.interpreter import interpret
from mapper.ast_model.text_form import parse
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.pipeline import derive_space, generate_kernels, subject_of_program
from nestmap.device_limits import limits_of_device
from tests.kernels import run_once
from tests.unit.kernel_gen.listing1 import assignment
from tests.unit.kernel_gen.test_sound_checker import inputs_of
from worker.oclgrind import check as oclgrind_check

pytestmark = pytest.mark.kernels

FUNCTIONS = """fun f(v) = v * 2.0 fun idv(v) = v + 0.0 fun e(v) = exp(v)
  fun product(a, b) = dot(a, b) fun h(v) = half_of(v) fun g(v) = float_of(v)"""


@dataclass(frozen=True)
class Kernel:
    """A program whose maps all run one after the other in one work-item; what its text has and
    what it has not."""

    text: str
    maps: str
    has: str = ""
    lacks: str = r"vload|vstore"


KERNELS = {
    **{
        f"vectors of {width}, which OpenCL {'has' if width in (8, 16) else 'lacks'}": Kernel(
            f"""size N = {16 * 5 * 7 * 12} input x : [float]N
            kernel out = let t = to_private(map#a(v => idv(v), as_vector({width}, x))) in
              as_scalar(map#b(v => f(v), t))""",
            "a b",
            rf"float{width} p_\w+\[" if width in (8, 16) else r"float p_\w+\[",
        )
        for width in (5, 6, 7, 8, 12, 16, 32)
    },
    "a sum over lanes for each of eight neighbours beside a vector of eight": Kernel(
        """input x : [[float]8]4 input w : [float<4>]1 input y : [float]8
        kernel out = let t = to_private(as_scalar(map#a(v => idv(v), as_vector(8, y)))) in
          map#b(p => add(p.0, p.1), zip(t, join(
            map#c(q => map#d(r => product(r.0, r.1), zip(as_vector(4, q), w)), transpose(x)))))""",
        "a b c d",
    ),
    "rows of eight, held and given back": Kernel(
        """size N = 40 input x : [[float]8]N
        kernel out = let t = to_private(map#a(r => as_scalar(map#b(v => f(v), as_vector(8, r))), x))
          in map#c(r => map#d(v => idv(v), r), t)""",
        "a b c d",
        r"float8 p_\w+\[40\]",
    ),
    "read one by one what was written in vectors": Kernel(
        """size N = 320 input x : [float]N
        kernel out = let t = to_private(as_scalar(map#a(v => f(v), as_vector(8, x)))) in
          map#b(v => idv(v), reorder(reverse, t))""",
        "a b",
        r"float p_\w+\[320\]",
        "float8 p_",
    ),
    "rows of eight that are also read one by one": Kernel(
        """size N = 40 input x : [[float]8]N input y : [float]320
        kernel out = let t = to_private(map#a(r => as_scalar(map#b(v => f(v), as_vector(8, r))), x))
          in let u = to_private(map#c(r => map#d(v => idv(v), r), t)) in
          map#e(p => add(p.0, p.1), zip(reorder(reverse, join(u)), join(t)))""",
        "a b c d e",
        r"float p_\w+\[320\]",
        "float8 p_",
    ),
    "vectors that begin within others": Kernel(
        """size N = 320 input x : [float]N
        kernel out = let t = to_private(as_scalar(map#a(v => f(v), as_vector(8, x)))) in
          as_scalar(map#b(v => idv(v), as_vector(8, pad(-4, -4, 0.0, t))))""",
        "a b",
        r"float p_\w+\[320\]",
        "float8 p_",
    ),
    "a border that single lanes lie in": Kernel(
        """size N = 320 input x : [float]N
        kernel out = let t = to_private(as_scalar(map#a(v => f(v), as_vector(8, x)))) in
          as_scalar(map#b(v => idv(v), as_vector(8, pad(3, 5, 0.5, t))))""",
        "a b",
        r"float p_\w+\[320\]",
        "float8 p_",
    ),
    "a border that whole rows lie in": Kernel(
        """size N = 40 input x : [[float]8]N
        kernel out = let t = to_private(map#a(r => as_scalar(map#b(v => f(v), as_vector(8, r))), x))
          in map#c(r => map#d(v => idv(v), r), pad(3, 5, 0.5, t))""",
        "a b c d",
        r"float8 p_\w+\[40\]",
    ),
    "a row whose ends lie in a border": Kernel(
        """size N = 40 input x : [[float]8]N
        kernel out = let t = to_private(map#a(r => as_scalar(map#b(v => f(v), as_vector(8, r))), x))
          in map#c(r => map#d(v => idv(v), pad(-1, 1, 0.5, r)), t)""",
        "a b c d",
        r"float p_\w+\[320\]",
        "float8 p_",
    ),
    "a function that is a call": Kernel(
        """size N = 40 input x : [[float]8]N
        kernel out = let t = to_private(map#a(r => as_scalar(map#b(v => f(v), as_vector(8, r))), x))
          in map#c(r => map#d(v => e(v), r), t)""",
        "a b c d",
        r"exp\(p_\w+\[i_c\*8 \+ i_d\]\)",
        "float8 p_",
    ),
    "elements of sixteen bits": Kernel(
        """size N = 40 input x : [[half]8]N
        kernel out = let t = to_private(map#a(r => as_scalar(map#b(v => g(v), as_vector(8, r))), x))
          in map#c(r => map#d(v => h(v), r), t)""",
        "a b c d",
        r"float8 p_\w+\[40\]",
        "",
    ),
}


@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
@pytest.mark.parametrize("name", KERNELS)
def test_what_one_work_item_copies_arrives(name: str) -> None:
    kernel = KERNELS[name]
    subject = subject_of_program(parse(f'program "copies" {{ {FUNCTIONS} {kernel.text} }}'))
    options = RuleOptions(sequential_fusion=False)
    space = derive_space(subject, Mode.STRICT, limits_of_device("pocl+half"), options)
    serial = " ".join("S" for _ in kernel.maps.split())
    plan = generate_kernels(subject, assignment(space, kernel.maps, serial, (1, 1, 1)))
    stored = np.float16 if "half]" in kernel.text else np.float32
    inputs = {name: array.astype(stored) for name, array in inputs_of(subject).items()}
    expected = interpret(subject.require_program(), {}, inputs)
    result = run_once(plan, inputs)
    np.testing.assert_allclose(result.reshape(expected.shape), expected, rtol=1e-5, atol=1e-5)
    report = oclgrind_check(plan, inputs, expected.reshape(result.shape).astype(np.float32))
    assert report.ok, (report.messages, plan.source)
    body = plan.source[plan.source.index("__kernel") :]
    assert re.search(kernel.has, body), body
    assert not kernel.lacks or not re.search(kernel.lacks, body), body
