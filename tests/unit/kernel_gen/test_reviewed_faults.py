"""Faults that a review found in kernels that the checker had accepted: each stays a test."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.ast_model.interpreter import interpret
from mapper.ast_model.text_form import parse
from mapper.constraint_rules.predicate import ParameterVariable
from mapper.errors import InputError
from mapper.pipeline import generate_kernels, subject_of_program
from mapper.solver.sampling import sample
from mapper.solver.space import check
from tests.effort import cases
from tests.kernels import run_once
from tests.unit.kernel_gen.listing1 import assignment, strict_space
from tests.unit.kernel_gen.test_sound_checker import inputs_of
from worker.oclgrind import Simulation, check_many

FUNCTIONS = "fun f(v) = v * 2.0 fun idv(v) = v + 0.0"
PROGRAMS = {
    "one parallel iteration for many threads": """
      size K = 8 input x : [[[float]1]K]1 input y : [float]8
      kernel out = let t = to_global(map#B(v => idv(v), y)) in
        join(map#A(pl => reduce((acc, b) => map#U(p => add(p.0, p.1), zip(acc, b)),
                                map#I(z => idv(z), fill(0.0, 1)), pl), x))""",
    "local scalar": """
      size N = 8 input x : [[float]N]2
      kernel out = map#o(r => map#m(v => let q = to_local(f(v)) in f(q), r), x)""",
    "local scalar accumulator": """
      size N = 8 size K = 4 input x : [[[float]K]N]2
      kernel out = map#o(r => join(map#m(v => reduce((a, e) => add(a, e), to_local(0.0), v), r)),
                         x)""",
    "vectors of 8 over vectors of 4": """
      size N = 16 input x : [float]N
      kernel out = as_vector(8, as_scalar(map#a(v => f(v), as_vector(4, x))))""",
    "vectors of 5 over vectors of 3": """
      size N = 30 input x : [float]N
      kernel out = let t = to_global(map#a(v => idv(v), as_vector(3, x))) in
        as_scalar(map#b(q => f(q), as_vector(5, as_scalar(t))))""",
    "sum of a scalar beside a vector": """
      size N = 4 fun h(v, a) = v + sum(a)
      input x : [float<4>]N input s : [float]N
      kernel out = map#m(p => h(p.0, p.1), zip(x, s))""",
    "sum of a sum": """
      size N = 4 fun h(v) = sum(sum(v) * 2.0) input x : [float<4>]N
      kernel out = map#m(p => h(p), x)""",
    "written inside a padded view": """
      size N = 8 input x : [float]N
      kernel out = map#m(p => f(p), pad(1, 1, 0.5, map#v(e => to_private(e), x)))""",
    "written inside a vector view": """
      size N = 8 input x : [float]N
      kernel out = map#m(p => f(p), as_vector(4, map#v(e => to_private(e), x)))""",
    "cropped vectors": """
      size N = 16 input x : [float]N
      kernel out = pad(-3, -2, 0.0, as_scalar(map#w(v => f(v), as_vector(4, x))))""",
    "names of OpenCL C": """
      size N = 4 input NULL : [float]N input vload4 : [float]N
      kernel floor = map#m(p => add(p.0, p.1), zip(NULL, vload4))""",
    "an input named like an intermediate": """
      size N = 4 input out_tmp_1 : [float]N input out_tmp_2_0 : [float]N
      kernel out = let t = to_private(map#a(v => f(v), out_tmp_1)) in
        map#m(p => add(p.0, p.1), zip(reorder(reverse, t), out_tmp_2_0))""",
    "an id that ends a comment": """
      size N = 4 input x : [float]N
      kernel out = map#"a*/b"(v => f(v), x)""",
}


def source(name: str) -> str:
    return f'program "reviewed" {{ {FUNCTIONS} {PROGRAMS[name]} }}'


@pytest.mark.kernels
@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
@pytest.mark.parametrize("name", PROGRAMS)
def test_sampled_mappings_run_right(name: str) -> None:
    subject = subject_of_program(parse(source(name)))
    space = strict_space(subject, sequential_fusion=False)
    inputs = inputs_of(subject)
    expected = interpret(subject.require_program(), {}, inputs)
    simulations: list[Simulation] = []
    for chosen in sample(space, cases(3, 5), seed=3):
        plan = generate_kernels(subject, chosen)
        result = run_once(plan, inputs)
        np.testing.assert_allclose(
            result.reshape(expected.shape), expected, rtol=1e-5, atol=1e-5, err_msg=plan.source
        )
        simulations.append(Simulation(plan, inputs, expected.reshape(result.shape)))
    for simulated, report in zip(simulations, check_many(simulations[:2]), strict=False):
        assert report.ok, (report.messages, simulated.plan.source)


def test_one_parallel_iteration_is_run_by_one_thread() -> None:
    subject = subject_of_program(parse(source("one parallel iteration for many threads")))
    space = strict_space(subject, sequential_fusion=False)
    chosen = assignment(space, "B A U I", "G0 G0 S S", (8, 1, 1))
    if check(space, chosen) == ():
        assert "if ((index_t)get_global_id(0) < 1)" in generate_kernels(subject, chosen).source


def test_global_threads_do_not_share_a_local_scalar() -> None:
    subject = subject_of_program(parse(source("local scalar")))
    space = strict_space(subject, sequential_fusion=False)
    violations = check(space, assignment(space, "o m", "S G0", (8, 1, 1)))
    assert "shared-memory-scoping" in {v.rule for v in violations}


TILED = """
program "tiled" { param p in {1, 2} size N = 8 fun f(v) = v * 2.0
  input x : [[[[float]N]3]2]2
  kernel out = map#A(q => map#E(pl => map#B(row =>
      let t = to_local(join(map#a(r => map#b(v => f(v), r), split(p, row)))) in
      join(map#c(r => map#d(v => f(v), r), split(p, t))), pl), q), x) }
"""


@pytest.mark.kernels
@pytest.mark.parametrize("tile", [1, 2])
def test_alignment_does_not_depend_on_a_tile_being_larger_than_one(tile: int) -> None:
    """Three iterations of B over two threads: right without a barrier, and only so."""
    subject = subject_of_program(parse(TILED))
    space = strict_space(subject, sequential_fusion=False)
    chosen = assignment(space, "A E B a b c d", "W0 W1 L1 L0 S L0 S", (2, 2, 1))
    chosen[ParameterVariable("p")] = tile
    assert check(space, chosen) == ()
    plan = generate_kernels(subject, chosen)
    assert "barrier(" not in plan.source
    inputs = inputs_of(subject)
    expected = interpret(subject.require_program(), {"p": tile}, inputs)
    np.testing.assert_allclose(run_once(plan, inputs), expected, rtol=1e-6)


def test_an_accumulator_that_mixes_its_lanes_is_refused() -> None:
    text = """program "mixed" { size N = 4 size K = 2 fun h(a, x) = x + a * dot(a, x)
      input x : [[float<3>]K]N input s : [[float<3>]1]N
      kernel out = map#m(p => reduce((acc, v) => map#u(q => h(q, v), acc),
                                     map#i(z => id(z), p.1), p.0), zip(x, s)) }"""
    with pytest.raises(InputError, match="element by element"):
        subject_of_program(parse(text))


def test_a_quotient_that_leaves_a_remainder_is_no_length() -> None:
    text = """program "quotient" { size N = 10 param p in {4, 5} input x : [float]N
      kernel out = map#m(t => add(t.0, t.1),
        zip(x, join(to_global(map#a(r => map#b(v => id(v), r), fill(0.5, p, N/p)))))) }"""
    subject = subject_of_program(parse(text))
    space = strict_space(subject)
    assert {a[ParameterVariable("p")] for a in sample(space, 6, seed=1)} == {5}


def test_a_crop_by_a_parameter_that_may_be_zero_is_refused() -> None:
    text = """program "crop" { size N = 4 param p in {0, 1} input x : [float]N
      kernel out = pad(1 - p, 0, 0.0, map#a(v => id(v), x)) }"""
    with pytest.raises(InputError, match="injective-write"):
        subject = subject_of_program(parse(text))
        strict_space(subject)
