"""Primitives of schedules keep the meaning of programs, alone and in chains.

What comes out type-checks, elaborates where the program before did, and can be printed and parsed.
The long campaign of the same chains is ``nestmap bench schedules``.
"""

from __future__ import annotations

import os
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bench.proofs.schedules.campaign import check_chain
from bench.proofs.schedules.chains import NAMES, Chain
from bench.proofs.schedules.computations import computation
from mapper.ast_model.elaborate import elaborate
from mapper.ast_model.interpreter import interpret
from mapper.ast_model.type_check import check_program
from mapper.errors import InputError
from tests import effort
from tests.property.programs import Case, cases

#: Chains of primitives that are tried; the campaign tries 20,000.
CHAINS = int(os.environ.get("NESTMAP_SCHEDULE_CHAINS", effort.cases(150, 500)))
relaxed = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@settings(relaxed, max_examples=CHAINS)
@given(st.integers(0, 2**32))
# A reduce whose accumulator nothing copied out became a kernel, which does not elaborate.
@example(251719)
def test_chains_of_primitives_keep_the_meaning(seed: int) -> None:
    check_chain(seed)


@settings(relaxed, max_examples=effort.cases(40, 100))
@given(cases(), st.randoms(use_true_random=False), st.sampled_from(NAMES))
def test_each_primitive_keeps_the_meaning_of_any_program(
    case: Case, random: Random, name: str
) -> None:
    chain = Chain(random, case.program, dict(case.values))
    for _ in range(3):
        chain.attempt(name)
    check_program(chain.program)
    wanted = interpret(case.program, case.values, case.inputs)
    found = interpret(chain.program, chain.values, case.inputs)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9, err_msg=str(chain.log))
    if _elaborates(case):
        elaborate(chain.program, chain.values)


def _elaborates(case: Case) -> bool:
    try:
        elaborate(case.program, case.values)
    except InputError:
        return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_each_primitive_applies_somewhere(name: str) -> None:
    """The chains above are not of refusals only."""
    done = 0
    for seed in range(60):
        chain = Chain(Random(seed), computation(Random(seed)))
        done += chain.reach(name)
        if done:
            return
    pytest.fail(f"{name} was refused everywhere")
