"""Whatever strict mode returns for a random program runs right: on PoCL, and for Oclgrind."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from mapper.ast_model.interpreter import interpret
from mapper.ast_model.nodes import Program
from mapper.ast_model.types import dimensions
from mapper.constraint_rules.rule import Mode, RuleOptions
from mapper.errors import InputError, UnsatisfiableError
from mapper.host_plan import HostPlan
from mapper.pipeline import Subject, derive_space, generate_kernels, subject_of_program
from mapper.profiles import load_profile
from mapper.solver.sampling import sample
from tests.property.pipelines import pipelines
from worker.oclgrind import check as oclgrind_check
from worker.run_plan import run_once

DEVICE = load_profile("pocl")
PATIENT = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def subject_or_discard(program: Program) -> Subject:
    try:
        return subject_of_program(program)
    except InputError:
        # Refused with a reason as it is read: nothing was promised.
        assume(False)
        raise


def plans(subject: Subject, seed: int, count: int, options: RuleOptions) -> list[HostPlan]:
    space = derive_space(subject, Mode.STRICT, DEVICE, options)
    try:
        return [generate_kernels(subject, a) for a in sample(space, count, seed)]
    except UnsatisfiableError:
        assume(False)
        raise


def input_of(program: Program) -> np.ndarray:
    shape = [n.constant or 0 for n in dimensions(program.inputs[0].type)[0]]
    # Small integers: every sum is exact, so any difference is a fault and not rounding.
    return np.random.default_rng(11).integers(-3, 4, shape).astype(np.float32)


def options_from(seed: int) -> RuleOptions:
    return RuleOptions(sequential_fusion=seed % 2 == 0, replicate_private=seed % 3 == 0)


@settings(max_examples=40, suppress_health_check=PATIENT)
@given(pipelines(), st.integers(0, 1000))
def test_every_sampled_kernel_computes_what_the_interpreter_does(
    program: Program, seed: int
) -> None:
    subject = subject_or_discard(program)
    x = input_of(program)
    expected = interpret(program, {}, {"x": x})
    for plan in plans(subject, seed, 3, options_from(seed)):
        np.testing.assert_allclose(
            run_once(plan, {"x": x}).reshape(expected.shape), expected, rtol=1e-5, atol=1e-3
        )


@pytest.mark.needs("oclgrind", install="apt-get install oclgrind")
@settings(max_examples=12, suppress_health_check=PATIENT)
@given(pipelines(), st.integers(0, 1000))
def test_no_sampled_kernel_has_a_race_or_reads_what_was_never_written(
    program: Program, seed: int
) -> None:
    subject = subject_or_discard(program)
    x = input_of(program)
    expected = interpret(program, {}, {"x": x})
    for plan in plans(subject, seed, 1, options_from(seed)):
        shape = next(b.shape for b in plan.buffers if b.role.value == "output")
        report = oclgrind_check(plan, {"x": x}, expected.reshape(shape))
        assert report.ok, report.messages
