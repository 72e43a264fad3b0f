"""Which thread touches which element, where loops are fused, split and joined.

``nestmap bench completeness`` found these refused without need: two loops over an array that was
split are one loop over it.
"""

from __future__ import annotations

import numpy as np
import pytest

from mapper.ast_model.interpreter import interpret
from mapper.constraint_rules.predicate import ParameterVariable
from mapper.pipeline import generate_kernels
from mapper.solver.space import check
from tests.kernels import run_once
from tests.unit.kernel_gen.listing1 import assignment, strict_space
from tests.unit.kernel_gen.test_sound_checker import inputs_of, subject_of
from worker.oclgrind import check as oclgrind_check

HEAD = "size N = 6 size M = 4 fun f(v) = v * 2.0 + 1.0"
SPLIT = f"""program "split_after" {{ {HEAD} input x : [float]N
  kernel out = let t = to_global(map#A(v => f(v), x)) in
    map#B(w => map#C(v => f(v), w), split(2, t)) }}"""
JOINED = f"""program "joined" {{ {HEAD} input x : [[float]M]N
  kernel out = let t = to_global(map#A(r => map#B(v => f(v), r), x)) in
    map#C(v => f(v), join(t)) }}"""
TRANSPOSED = JOINED.replace("join(t)", "join(transpose(t))")
TILES = f"""program "tiles" {{ param p in {{1, 2, 3, 6}} {HEAD} input x : [float]N
  kernel out = let t = to_global(map#A(v => f(v), x)) in
    map#B(w => map#C(v => f(v), w), split(p, t)) }}"""


@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
@pytest.mark.parametrize(
    ("text", "codes", "local"),
    [
        (SPLIT, "G0 G0 F", (2, 1, 1)),
        (SPLIT, "G0 G0 F", (4, 1, 1)),
        (JOINED, "G0 F G0", (2, 1, 1)),
        (JOINED, "G0 F G0", (5, 1, 1)),
    ],
)
def test_fused_loops_are_one_loop(text: str, codes: str, local: tuple[int, int, int]) -> None:
    subject = subject_of(text)
    space = strict_space(subject)
    chosen = assignment(space, "A B C", codes, local)
    assert check(space, chosen) == ()
    plan = generate_kernels(subject, chosen)
    assert "barrier(" not in plan.source
    inputs = inputs_of(subject)
    expected = interpret(subject.require_program(), {}, inputs)
    report = oclgrind_check(plan, inputs, expected, uniform_writes=True)
    assert report.ok, report.messages


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (SPLIT, "G0 G0 S"),
        (SPLIT, "G0 S G0"),
        (JOINED, "G0 S G0"),
        (TRANSPOSED, "G0 F G0"),
    ],
)
def test_other_threads_are_other_threads(text: str, codes: str) -> None:
    space = strict_space(subject_of(text), sequential_fusion=False)
    broken = {v.rule for v in check(space, assignment(space, "A B C", codes, (2, 1, 1)))}
    assert "cross-group-dependence" in broken


@pytest.mark.kernels
@pytest.mark.parametrize("tile", [1, 2, 3, 6])
def test_so_it_is_whatever_a_tuning_parameter_says(tile: int) -> None:
    subject = subject_of(TILES)
    space = strict_space(subject)
    chosen = assignment(space, "A B C", "G0 G0 F", (2, 1, 1))
    chosen[ParameterVariable("p")] = tile
    assert check(space, chosen) == ()
    plan = generate_kernels(subject, chosen)
    assert "barrier(" not in plan.source
    inputs = inputs_of(subject)
    expected = interpret(subject.require_program(), {"p": tile}, inputs)
    np.testing.assert_allclose(run_once(plan, inputs), expected, rtol=1e-6)
